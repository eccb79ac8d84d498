"""Weighted max-min fairness, solved on groups of flows, and shares that an allocation gives out.

The flows of one group cross the same shared links, so at the optimum they all have the same *level*, except flows whose
own cap is below it. Progressive filling (Bertsekas and Gallager, Data Networks, section 6.5.2) is applied to the groups
here, and each sweep handles every *local* bottleneck at once: a link whose level is the lowest among all links that its
groups cross stays the lowest, because levels of other links only rise when it is frozen.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol


class Group(Protocol):
    """The interface of a group of flows that the solver uses."""

    links: tuple[int, ...]
    level: float

    def demand(self, link: int, level: float) -> tuple[float, float]:
        """``(load, slope)`` on ``link``: near this level the group takes ``load + slope * level``."""


def link_level(capacity: float, link: int, groups: Sequence[Group], guess: float) -> float:
    """The level at which these groups fill the link exactly; infinite if they never do.

    Newton's method on a concave, piecewise-linear function: the first step ends at or left of the root, each further
    step moves right across at least one kink, and the last is exact because the function is linear there.

    ``capacity`` is what remains of the link for them, bit/s; ``guess`` is usually the level before the change.
    """
    level, moved = guess, False
    while True:
        if len(groups) == 1:
            load, slope = groups[0].demand(link, level)
        else:
            load = slope = 0.0
            for group in groups:
                group_load, group_slope = group.demand(link, level)
                load += group_load
                slope += group_slope
        if slope == 0.0:
            if moved or load <= capacity:
                return math.inf
            level = 0.0  # the guess was far right of the root; at 0 every flow that has a cap is below it
            continue
        step = max((capacity - load) / slope, 0.0)
        # After the first step the sequence can only rise. If rounding at a kink makes it fall, it has converged: more
        # steps could alternate between the two sides of that kink without end.
        if step == level or (moved and step < level):
            return level
        level, moved = step, True


def fair_levels(
    capacity: Mapping[int, float], groups: Sequence[Group], open_levels: dict[int, float] | None = None
) -> list[float]:
    """The max-min fair level of each group; infinite where only the flows' own caps limit it.

    ``capacity`` is bit/s of each shared link of these groups, a connected component in a fixed order; ``open_levels``
    those of links before any group is frozen, from an earlier call, without links that have changed since.
    """
    known = {} if open_levels is None else open_levels
    if len(capacity) == 1:
        (link,) = capacity  # a star's server, the most common case: all groups have its level
        if link not in known:
            known[link] = link_level(capacity[link], link, groups, _guess(groups))
        return [known[link]] * len(groups)
    filling = _Filling(capacity, groups, known)
    while filling.crossing:
        filling.freeze(filling.local_bottlenecks())
        filling.find_levels()
    return filling.levels


class _Filling:
    """The groups that still rise, and the remaining capacity of each link."""

    def __init__(self, capacity: Mapping[int, float], groups: Sequence[Group], open_levels: dict[int, float]) -> None:
        self.groups = groups
        self.levels = [math.nan] * len(groups)
        self.crossing: dict[int, dict[int, None]] = {}
        for number, group in enumerate(groups):
            for link in group.links:
                self.crossing.setdefault(link, {})[number] = None
        self.left = {link: capacity[link] for link in self.crossing}
        self.link_levels = {link: open_levels[link] for link in self.crossing if link in open_levels}
        self.stale = {link: None for link in self.crossing if link not in open_levels}
        self.find_levels()
        open_levels.update(self.link_levels)

    def find_levels(self) -> None:
        for link in self.stale:
            if link in self.crossing:
                members = [self.groups[number] for number in self.crossing[link]]
                self.link_levels[link] = link_level(self.left[link], link, members, _guess(members))
        self.stale = {}

    def local_bottlenecks(self) -> list[int]:
        """The links that have the lowest level for each of their groups."""
        link_levels, crossing = self.link_levels, self.crossing
        lowest = [math.inf] * len(self.groups)
        for link, numbers in crossing.items():
            level = link_levels[link]
            for number in numbers:
                lowest[number] = min(lowest[number], level)
        return [
            link for link, numbers in crossing.items() if all(lowest[number] == link_levels[link] for number in numbers)
        ]

    def freeze(self, bottlenecks: Sequence[int]) -> None:
        for bottleneck in bottlenecks:
            # A neighbour of exactly the same level may just have frozen all groups of this link.
            for number in self.crossing.pop(bottleneck, ()):
                level = self.levels[number] = self.link_levels[bottleneck]
                for link in self.groups[number].links:
                    others = self.crossing.get(link)
                    if others is None:
                        continue
                    load, slope = self.groups[number].demand(link, level)
                    self.left[link] = max(self.left[link] - load - (slope * level if slope else 0.0), 0.0)
                    del others[number]
                    self.stale[link] = None
                    if not others:
                        del self.crossing[link]


def _guess(groups: Sequence[Group]) -> float:
    if len(groups) == 1:
        return groups[0].level if groups[0].level < math.inf else 0.0
    return max((group.level for group in groups if group.level < math.inf), default=0.0)


_NOTHING = 1e-12
"""The share of a capacity that counts as nothing left, so that rounding gives no rate to the next rank."""


class Outlook(NamedTuple):
    """What is known about a client's round when one of its transfers begins."""

    up: bool = False  # the transfer is the client's update
    after: float = 0.0  # predicted seconds from the end of the transfer to the arrival of the update
    deadline: float = math.inf  # virtual time by which the update must have arrived, seconds; infinite for none


class Progress(NamedTuple):
    """A transfer in progress, as an allocator sees it."""

    bytes: float
    left: float  # the bytes that have not arrived yet
    # the rate that it would have if it were the only transfer, bit/s; 0 while a link of its path is down
    alone: float
    outlook: Outlook


class Shares(NamedTuple):
    """How transfers share their links."""

    rank: Sequence[int]  # of each transfer; it gets only what the transfers of lower ranks leave
    # of each transfer, above 0; those of one rank share what is left for it max-min fairly by weight
    weight: Sequence[float]
    # from the rates that follow (bit/s) to the seconds after which the shares expire
    lasts: Callable[[Sequence[float]], float] = lambda _: math.inf


Allocator = Callable[[float, Sequence[Progress]], Shares]
"""Gives the shares, from a time on (seconds), of transfers that are connected by shared links, in the order of their
start. Called when one of them begins or ends to use its links, when a capacity of these links changes, and when the
last answer has expired."""


class Claim(NamedTuple):
    """What a transfer takes of its shared links."""

    most: float  # the maximum of its rate, given the links that it alone uses, bit/s
    links: tuple[int, ...]  # the links of finite capacity that it shares with others
    per_bit: Mapping[int, float]  # the amount of a link that a bit/s takes, where it is not 1

    def alone(self, capacity: Mapping[int, float]) -> float:
        """Its rate (bit/s) if it were the only transfer, given the capacities of the shared links."""
        taken = ((capacity[link], self.per_bit.get(link, 1.0)) for link in self.links)
        return min([self.most, *(rate / each for rate, each in taken if each > 0.0)])


class _Member:
    __slots__ = ("_most", "_per_bit", "_weight", "level", "links")

    def __init__(self, claim: Claim, weight: float) -> None:
        self.links = claim.links
        self.level = 0.0
        self._most = claim.most
        self._per_bit = claim.per_bit
        self._weight = weight

    def demand(self, link: int, level: float) -> tuple[float, float]:
        per_bit = self._per_bit.get(link, 1.0)
        if level * self._weight >= self._most:
            return self._most * per_bit, 0.0
        return 0.0, self._weight * per_bit


def allotted(claims: Sequence[Claim], shares: Shares, capacity: Mapping[int, float]) -> list[float]:
    """The rate of each transfer, bit/s: rank after rank, each weighted max-min fair on what is left.

    ``capacity`` is that of each shared link, bit/s; of a wireless channel, the usable share of its time.

    A link of 10 bit/s; the first transfer comes first but cannot use more than 4 bit/s.

    >>> claims = [Claim(4.0, (0,), {}), Claim(math.inf, (0,), {}), Claim(math.inf, (0,), {})]
    >>> allotted(claims, Shares([0, 1, 1], [1.0, 1.0, 2.0]), {0: 10.0})
    [4.0, 2.0, 4.0]
    """
    left = dict(capacity)
    rates = [0.0] * len(claims)
    ranks: dict[int, list[int]] = {}
    for number, rank in enumerate(shares.rank):
        ranks.setdefault(rank, []).append(number)
    for rank in sorted(ranks):
        served = [number for number in ranks[rank] if all(left[link] > 0.0 for link in claims[number].links)]
        if not served:
            continue
        members = [_Member(claims[number], shares.weight[number]) for number in served]
        crossed = {link: left[link] for member in members for link in member.links}
        for number, level in zip(served, fair_levels(crossed, members), strict=True):
            claim = claims[number]
            rates[number] = min(claim.most, level * shares.weight[number])
            for link in claim.links:
                rest = left[link] - rates[number] * claim.per_bit.get(link, 1.0)
                left[link] = rest if rest > _NOTHING * capacity[link] else 0.0
    return rates
