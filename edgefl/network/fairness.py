"""Weighted max-min fairness, solved on groups of flows.

The flows of one group cross the same shared links, so at the optimum they all stand at one *level*, except those that
their own cap holds below it. Progressive filling (Bertsekas and Gallager, Data Networks, section 6.5.2) is done here on
the groups, and in each sweep on every *local* bottleneck at once: a link whose level is the lowest among all links that
its groups cross can never be overtaken, because levels of other links only rise when it is frozen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol


class Group(Protocol):
    """What the solver asks of a group of flows."""

    links: tuple[int, ...]
    level: float

    def demand(self, link: int, level: float) -> tuple[float, float]:
        """``(load, slope)`` on ``link``: near this level the group takes ``load + slope * level``."""


def link_level(capacity: float, link: int, groups: Sequence[Group], guess: float) -> float:
    """The level at which these groups fill the link exactly; infinite where they never do.

    Newton's method on a concave, piecewise-linear function: the first step lands at or left of the root, every further
    one moves right across at least one kink, and the last is exact because the function is linear there.

    Args:
        capacity: what the link has left for them, bit/s.
        link: the link.
        groups: those whose level this link may set.
        guess: where to begin, usually the level before the change.
    """
    level, moved = guess, False
    while True:
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
        # After the first step the sequence can only rise. Where rounding at a kink lets it fall, it has arrived:
        # going on could alternate between the two sides of that kink for ever.
        if step == level or (moved and step < level):
            return level
        level, moved = step, True


def fair_levels(
    capacity: Mapping[int, float], groups: Sequence[Group], open_levels: dict[int, float] | None = None
) -> list[float]:
    """The max-min fair level of each group; infinite where only the flows' own caps bind.

    Args:
        capacity: bit/s of each shared link that a group crosses.
        groups: all groups of one connected component, in a fixed order.
        open_levels: the levels of links before any group is frozen, as this function left them here in an earlier call;
            links whose capacity or groups have changed since must not be in it.
    """
    crossing: dict[int, dict[int, None]] = {}
    for number, group in enumerate(groups):
        for link in group.links:
            crossing.setdefault(link, {})[number] = None
    levels = [math.nan] * len(groups)
    left = {link: capacity[link] for link in crossing}
    known = {} if open_levels is None else open_levels
    if len(crossing) == 1:
        (link,) = crossing  # a star's server: all groups stand at its level
        if link not in known:
            known[link] = link_level(capacity[link], link, groups, _guess(groups))
        return [known[link]] * len(groups)
    link_levels = {link: known[link] for link in crossing if link in known}
    stale = {link: None for link in crossing if link not in known}
    is_open = True
    while crossing:
        for link in stale:
            if link in crossing:
                members = [groups[number] for number in crossing[link]]
                link_levels[link] = link_level(left[link], link, members, _guess(members))
                if is_open:
                    known[link] = link_levels[link]
        is_open = False
        stale = {}
        lowest: dict[int, float] = {}
        for link, numbers in crossing.items():
            level = link_levels[link]
            for number in numbers:
                lowest[number] = min(level, lowest.get(number, math.inf))
        bottlenecks = [
            link for link, numbers in crossing.items() if all(lowest[number] == link_levels[link] for number in numbers)
        ]
        for bottleneck in bottlenecks:
            # A neighbour of exactly the same level may have frozen all groups of this link a moment ago.
            for number in crossing.pop(bottleneck, ()):
                level = levels[number] = link_levels[bottleneck]
                for link in groups[number].links:
                    others = crossing.get(link)
                    if others is None:
                        continue
                    load, slope = groups[number].demand(link, level)
                    left[link] = max(left[link] - load - (slope * level if slope else 0.0), 0.0)
                    del others[number]
                    stale[link] = None
                    if not others:
                        del crossing[link]
    return levels


def _guess(groups: Sequence[Group]) -> float:
    return max((group.level for group in groups if group.level < math.inf), default=0.0)
