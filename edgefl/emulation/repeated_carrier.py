"""Carries no transfer while measured rounds are repeated, and all of them afterwards."""

from __future__ import annotations

from collections.abc import Callable

from edgefl.emulation.carried_network import Carrier
from edgefl.emulation.history import History
from edgefl.emulation.wiring import Pair


class RepeatedCarrier:
    """Remembers what the links must be like when the repetition ends; see :class:`~.carried_network.Carrier`.

    Args:
        carrier: the processes and links.
        history: what is repeated.
        start: starts the clock, and calls :meth:`prepare` and :meth:`go_live`; it has no effect later.
    """

    def __init__(self, carrier: Carrier, history: History, start: Callable[[], None]) -> None:
        self._carrier = carrier
        self._history = history
        self._start = start
        self._capacities: dict[Pair, float] = {}
        self._down: set[str] = set()
        self._sent: dict[int, tuple[str, str, int, int | None]] = {}

    def prepare(self) -> None:
        """The repetition is over: bring processes and links into the present state, before connections are opened."""
        self._carrier.set_capacities(self._capacities)
        for node in sorted(self._down):
            self._carrier.end_process(node)

    def go_live(self) -> None:
        """Begin the transfers in progress again, because the processes that carried them are gone."""
        for flow, (source, target, bytes, round_trips) in self._sent.items():
            self._carrier.send(flow, source, target, bytes, round_trips)

    def send(self, flow: int, source: str, target: str, bytes: int, round_trips: int | None) -> None:
        """See :class:`~edgefl.emulation.carried_network.Carrier`."""
        if self._repeats():
            self._sent[flow] = source, target, bytes, round_trips
        else:
            self._carrier.send(flow, source, target, bytes, round_trips)

    def arrived(self, flow: int) -> None:
        """A transfer has ended in the repetition."""
        self._sent.pop(flow, None)

    def stop(self, flow: int, source: str, target: str) -> int:
        """See :class:`~edgefl.emulation.carried_network.Carrier`."""
        if self._repeats():
            self.arrived(flow)
            return self._history.delivered(flow)
        return self._carrier.stop(flow, source, target)

    def progress(self, flow: int, target: str) -> int:
        """See :class:`~edgefl.emulation.carried_network.Carrier`."""
        return self._history.progress(flow) if self._repeats() else self._carrier.progress(flow, target)

    def set_capacities(self, changes: dict[Pair, float]) -> None:
        """See :class:`~edgefl.emulation.carried_network.Carrier`."""
        if self._repeats():
            self._capacities |= changes
        else:
            self._carrier.set_capacities(changes)

    def end_process(self, node: str) -> None:
        """See :class:`~edgefl.emulation.carried_network.Carrier`."""
        if self._repeats():
            self._down.add(node)
        else:
            self._carrier.end_process(node)

    def begin_process(self, node: str) -> None:
        """See :class:`~edgefl.emulation.carried_network.Carrier`."""
        if self._repeats():
            self._down.discard(node)
        else:
            self._carrier.begin_process(node)

    def _repeats(self) -> bool:
        if self._history.active:
            return True
        self._start()
        return False
