"""Rates that a server gives to transfers instead of equal shares: strict ranks, and weights within a rank."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from edgefl.network.fairness import fair_levels

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


def _never(_: Sequence[float]) -> float:
    return math.inf


class Shares(NamedTuple):
    """How transfers share their links."""

    rank: Sequence[int]  # of each transfer; it gets only what the transfers of lower ranks leave
    # of each transfer, above 0; those of one rank share what is left for it max-min fairly by weight
    weight: Sequence[float]
    # from the rates that follow (bit/s) to the seconds after which the shares expire
    lasts: Callable[[Sequence[float]], float] = _never


class Allocator(Protocol):
    """Decides how transfers share links."""

    def shares(self, now: float, transfers: Sequence[Progress]) -> Shares:
        """The shares of transfers that are connected by shared links, in the order of their start.

        Called when one of them begins or ends to use its links, when a capacity of these links changes, and when the
        last answer has expired.
        """


@dataclass(slots=True)
class Terms:
    """What an allocator must know about a flow.

    ``most`` is its largest rate given the links that it alone uses, ``rate`` its last one; both bit/s.
    """

    bytes: float
    outlook: Outlook
    most: float = math.inf
    rate: float = math.inf


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
