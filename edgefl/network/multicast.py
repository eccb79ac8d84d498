"""One payload for many receivers: a tree of links that carries it once, at one rate for all."""

from __future__ import annotations

from collections.abc import Hashable

from edgefl.network.flow import Flow


class Multicast:
    """Flows that carry the same payload from one node, combined to one flow on the links.

    The first byte flows when the longest latency of the members' paths has passed, and all members end at once. A
    cancelled member also removes the links that only it used; delays that it caused before remain.

    Args:
        number: 1, 2, 3, … in the order of start.
        key: what all its members have in common: source, time and payload.

    Attributes:
        members: the flows, by number.
        starts: when its first byte flows.
        joined: whether it has begun to use its links.
    """

    def __init__(self, number: int, key: Hashable) -> None:
        self.id = number
        self.key = key
        self.members: dict[int, Flow] = {}
        self.starts = 0.0
        self.joined = False

    def add(self, flow: Flow) -> None:
        """Add one more receiver of the payload, before the first byte flows."""
        flow.multicast = self.id
        self.members[flow.id] = flow
        self.starts = max(self.starts, flow.started + flow.latency)

    @property
    def path(self) -> tuple[int, ...]:
        """The links of the tree, each once."""
        return tuple(dict.fromkeys(link for flow in self.members.values() for link in flow.path))

    @property
    def first(self) -> Flow:
        """A member; all members have its size, start and weight."""
        return next(iter(self.members.values()))
