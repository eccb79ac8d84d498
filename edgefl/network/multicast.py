"""One payload for many: a tree of links that carries it once, at one rate, for everyone who asked for it."""

from __future__ import annotations

from collections.abc import Hashable

from edgefl.network.flow import Flow


class Multicast:
    """Flows that carry the same payload from one node, as the one flow that the links see.

    The first byte flows when the longest latency of the members' paths has passed, and all members end at once. A
    member that is cancelled takes the links with it that it alone used; what it delayed before stays so.

    Args:
        number: 1, 2, 3, … in the order of start.
        key: what all its members have in common: where from, when, and what is sent.

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
        """Take in one more who asks for the payload, before the first byte flows."""
        flow.multicast = self.id
        self.members[flow.id] = flow
        self.starts = max(self.starts, flow.started + flow.latency)

    @property
    def path(self) -> tuple[int, ...]:
        """The links of the tree, each once."""
        return tuple(dict.fromkeys(link for flow in self.members.values() for link in flow.path))

    @property
    def first(self) -> Flow:
        """A member that says size, start and weight for all."""
        return next(iter(self.members.values()))
