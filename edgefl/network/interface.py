"""The network as the simulated world uses it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edgefl.network.allotment import Outlook
from edgefl.network.flow import Flow, Node
from edgefl.network.processes import CapacityProcess
from edgefl.network.route import Alone, Route
from edgefl.network.topology import Topology


class Network(Protocol):
    """Carries transfers; :class:`~edgefl.network.flow_network.FlowNetwork` computes when they end.

    Attributes:
        topology: its links.
        route: the path between two nodes.
    """

    topology: Topology
    route: Callable[[Node, Node], Route]

    def transfer(
        self,
        source: Node,
        target: Node,
        bytes: float,
        *,
        tag: object = None,
        weight: float = 1.0,
        payload: Hashable = None,
        outlook: Outlook | None = None,
    ) -> Flow:
        """Send ``bytes`` over the least-latency path; the flow triggers when they have arrived."""

    def cancel(self, flow: Flow) -> None:
        """Stop a flow now; one that has ended does not change."""

    def set_capacities(self, links: NDArray[np.int64], bits_per_second: NDArray[np.float64]) -> None:
        """Change the capacities of links, given by number, from now on."""

    def follow(self, link: int, process: CapacityProcess) -> None:
        """Let the capacity of a link, given by number, follow a process from now on."""

    def begin_outage(self, link: int) -> None:
        """A link, given by number, has no capacity from now on; what sets its capacity takes effect afterwards."""

    def end_outage(self, link: int) -> None:
        """A link has the capacity again that it would have without its outage."""

    def end_process(self, node: Node) -> None:
        """A node's process ends now, with its connections; the caller then cancels its flows."""

    def begin_process(self, node: Node) -> None:
        """A node whose process has ended has a new one."""

    def capacity(self, source: Node, target: Node) -> float:
        """The present capacity of a link, bit/s."""

    def alone(self, source: Node, target: Node) -> Alone:
        """What each transfer would take if it had the network to itself, at the present capacities."""
