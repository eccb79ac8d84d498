"""The real links between network namespaces: created, shaped, and changed while transfers run."""

from __future__ import annotations

from collections.abc import Mapping

from edgefl.emulation.link_settings import LinkSettings
from edgefl.emulation.wiring import Pair, Wiring


class Links:
    """The links of a plan between the namespaces of the nodes' processes; a context manager.

    The process that makes them must be root in the user namespace that owns the nodes' network namespaces. Everything
    is inside these namespaces, so it vanishes with the nodes' processes, however they end.

    Args:
        wiring: the plan.
        pids: the process of each node, which is in a network namespace of its own.
        settings: how links queue and connections begin.

    Raises:
        OSError: a command failed; the message is the command's.
    """

    def __init__(self, wiring: Wiring, pids: Mapping[str, int], settings: LinkSettings) -> None:
        raise NotImplementedError

    def set_capacities(self, changes: Mapping[Pair, float]) -> None:
        """Change capacities of links now, by their ends: bit/s of the scenario; 0 is an outage, infinite unshaped.

        In an outage no packet of a transfer passes; those in queues stay, and so do the connections. Links that no
        route crosses are ignored.
        """

    def counters(self) -> dict[Pair, int]:
        """The bytes of payload (and its headers) that each link has carried, without pure acknowledgements."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise OSError if a process that the links need has ended."""

    def close(self) -> None:
        """End the processes that carry packets and changes."""
