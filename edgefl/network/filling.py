"""Textbook progressive filling, the reference of the audit; the network itself solves on groups (``fairness.py``).

All rates rise together, each in proportion to its weight, until a constraint is full and freezes its flows; the other
rates continue to rise (Bertsekas and Gallager, Data Networks, section 6.5.2).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable, Sequence
from itertools import groupby
from typing import NamedTuple


class Claim(NamedTuple):
    """A flow in progressive filling.

    Attributes:
        flow: its number.
        weight: its rate is ``weight`` times the level of its bottleneck.
        limits: (constraint, its capacity, the amount of it that one bit/s takes), one for each link or channel.
    """

    flow: int
    weight: float
    limits: Sequence[tuple[Hashable, float, float]]


def fill(claims: Sequence[Claim]) -> dict[int, float]:
    """Weighted max-min fair rates (bit/s) by progressive filling.

    >>> fill([Claim(0, 1.0, [("a", 10.0, 1.0)]), Claim(1, 1.0, [("a", 10.0, 1.0), ("b", 2.0, 1.0)])])
    {1: 2.0, 0: 8.0}
    """
    left: dict[Hashable, float] = {}
    slopes: dict[Hashable, dict[int, float]] = {}
    by_flow = {claim.flow: claim for claim in claims}
    for claim in claims:
        for constraint, capacity, per_bit in claim.limits:
            left[constraint] = capacity
            slopes.setdefault(constraint, {})[claim.flow] = per_bit * claim.weight
    order = {constraint: number for number, constraint in enumerate(slopes)}
    latest = {constraint: left[constraint] / sum(slopes[constraint].values()) for constraint in slopes}
    offers = [(latest[constraint], order[constraint], constraint) for constraint in slopes]
    heapq.heapify(offers)
    rates = {claim.flow: math.inf for claim in claims if not claim.limits}
    while offers:
        offer, _, bottleneck = heapq.heappop(offers)
        if offer != latest[bottleneck] or not slopes[bottleneck]:
            continue
        changed: dict[Hashable, None] = {}
        for flow in list(slopes[bottleneck]):
            claim = by_flow[flow]
            rates[flow] = offer * claim.weight
            for constraint, _, per_bit in claim.limits:
                del slopes[constraint][flow]
                left[constraint] = max(left[constraint] - rates[flow] * per_bit, 0.0)
                changed[constraint] = None
        for constraint in changed:
            if slopes[constraint]:
                # Summed again each time: subtracting the weights one by one would leave rounding errors in the divisor.
                latest[constraint] = max(left[constraint] / sum(slopes[constraint].values()), offer)
                heapq.heappush(offers, (latest[constraint], order[constraint], constraint))
    return rates


def fill_by_rank(claims: Sequence[Claim], rank: Sequence[int]) -> dict[int, float]:
    """Rates (bit/s) where a claim gets only what the claims of lower ranks leave, and claims of one rank fill together.

    >>> first, second = Claim(0, 1.0, [("a", 10.0, 1.0), ("b", 4.0, 1.0)]), Claim(1, 1.0, [("a", 10.0, 1.0)])
    >>> fill_by_rank([first, second], [0, 1]), fill_by_rank([first, second], [1, 0])
    ({0: 4.0, 1: 6.0}, {1: 10.0, 0: 0.0})
    """
    rates: dict[int, float] = {}
    taken: dict[Hashable, float] = {}
    for _, numbers in groupby(sorted(range(len(claims)), key=rank.__getitem__), key=rank.__getitem__):
        rest = []
        for claim in (claims[number] for number in numbers):
            limits = [(name, max(full - taken.get(name, 0.0), 0.0), each) for name, full, each in claim.limits]
            rest.append(claim._replace(limits=limits))
        rates |= fill(rest)
        for claim in rest:
            for name, _, per_bit in claim.limits:
                taken[name] = taken.get(name, 0.0) + rates[claim.flow] * per_bit
    return rates
