"""The best cohort and bandwidth shares of one small round, by mixed-integer linear programming."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np

from edgefl.scheduling.optimum.choices import Choices
from edgefl.scheduling.optimum.program import Program


class Optimum(NamedTuple):
    """The best round.

    Attributes:
        seconds: its makespan: when the last upload ends.
        joules: of the clients that take part.
        chosen: the indices of the choices, ascending.
    """

    seconds: float
    joules: float
    chosen: tuple[int, ...]


def best_round(
    choices: Choices,
    utility: float,
    *,
    least: Literal["seconds", "joules"] = "seconds",
    deadline: float = math.inf,
) -> Optimum | None:
    """The round with the least makespan, or the fewest joules, among all that reach a utility by a deadline.

    The rates of fluid transfers can be taken as constant between two events. Events are the ends of downloads and the
    beginnings of uploads. For a given order of these, the least makespan is a linear program whose variables are the
    moments of the events, and the part of each transfer between two of them. Here the order and the cohort are binary
    variables of the program, so the result is exact, to the tolerances of the solver (HiGHS). To share two links
    between transfers with computing between them is a flow shop with time lags, for which no fast exact algorithm is
    known, so the time grows quickly with the number of clients: it is meant for cohorts of up to four.

    Args:
        choices: the possible participations; all must have the same ``start``.
        utility: the least sum of utilities.
        least: what is minimized.
        deadline: the highest makespan.

    Returns:
        The best round; None if no round reaches the utility by the deadline.

    Raises:
        ValueError: choices have different starts.

    >>> alone = np.array([2.0, 1.0, 4.0])
    >>> ones, rate = np.ones(3), np.full(3, 1.0)
    >>> choices = Choices(np.arange(3), alone, rate, 0 * ones, ones, ones, rate, ones, joules=np.array([1., 9., 2.]))
    >>> best_round(choices, 2)
    Optimum(seconds=4.0, joules=10.0, chosen=(0, 1))
    >>> best_round(choices, 2, least="joules").chosen, best_round(choices, 2, deadline=3.9)
    ((0, 2), None)
    """
    if len(set(choices.start.tolist())) > 1:
        raise ValueError("expected choices with the same start, because events are only ends and beginnings")
    able = np.flatnonzero(np.isfinite(choices.alone) & (choices.alone <= deadline))
    kept = choices.only(np.isin(np.arange(len(choices.client)), able))
    if utility <= 0:
        return Optimum(0.0, 0.0, ())
    if kept.most_utility() < utility * (1 - 1e-12):
        return None
    program = Program(kept, utility, _most_clients(kept, utility), deadline)
    taken = program.solve(least)
    if taken is None:
        return None
    return Optimum(
        seconds=float(program.makespan(taken)),
        joules=float(kept.joules[taken].sum()),
        chosen=tuple(int(each) for each in able[taken]),
    )


def _most_clients(choices: Choices, utility: float) -> int:
    """The size of the largest cohort that no client can leave without losing the utility.

    Of any larger cohort some client can be left out, which makes the round neither longer nor more expensive.
    """
    smallest: dict[int, float] = {}
    for client, each in zip(choices.client.tolist(), choices.utility.tolist(), strict=True):
        smallest[client] = min(smallest.get(client, math.inf), each)
    sums = np.cumsum(sorted(smallest.values()))
    return min(int(np.searchsorted(sums, utility * (1 - 1e-12))) + 1, len(sums))
