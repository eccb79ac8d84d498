"""Compute for how many rounds each budget of a scenario is enough."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from edgefl.planning.figures import BudgetPlan
from edgefl.planning.observation import Observation
from edgefl.record.kinds import BudgetKind
from edgefl.record.rounds import RoundRow
from edgefl.scenario import Scenario


def budget_plan(
    kind: BudgetKind, limit: float, rows: Sequence[RoundRow], seen: Observation, scenario: Scenario
) -> BudgetPlan:
    """Return how far one budget reaches if it is the only one of the run.

    Args:
        kind: the limited quantity.
        limit: its limit.
        rows: the planned rounds.
        seen: what each client spent in these rounds.
        scenario: the scenario with the budget.
    """
    last = scenario.training.rounds
    spent = _spent(kind, rows, seen)
    paid = sum(each <= limit for each in spent)
    if paid < len(rows):
        return BudgetPlan(kind, limit, paid, rows[paid - 1].seconds if paid else 0.0, lasts=False, foreseen=False)
    if len(rows) >= last or not rows or not spent[-1]:
        return BudgetPlan(kind, limit, len(rows), rows[-1].seconds if rows else 0.0, lasts=True, foreseen=False)
    if kind == "client_bytes":
        reach = max(len(rows), _busiest_reaches(limit, rows, scenario.data.clients))
    else:
        reach = math.floor(limit / (spent[-1] / len(rows)))
    rounds = min(reach, last)
    return BudgetPlan(kind, limit, rounds, rounds * rows[-1].seconds / len(rows), lasts=reach >= last, foreseen=True)


def _spent(kind: BudgetKind, rows: Sequence[RoundRow], seen: Observation) -> list[float]:
    """Return what was spent by the end of each round; for ``client_bytes``, by the client that spent the most."""
    if kind == "seconds":
        return [row.seconds for row in rows]
    if kind == "client_bytes":
        totals: dict[int, float] = {}
        by_round: dict[int, list[tuple[int, float]]] = {}
        for (round, client), spent in seen.spent.items():
            by_round.setdefault(round, []).append((client, spent.bytes_down + spent.bytes_up))
        most = []
        for row in rows:
            for client, bytes in by_round.get(row.round, []):
                totals[client] = totals.get(client, 0.0) + bytes
            most.append(max(totals.values(), default=0.0))
        return most
    return list(accumulate(_spent_in(row, kind) for row in rows))


def _spent_in(row: RoundRow, kind: BudgetKind) -> float:
    return {"bytes": float(row.bytes_down + row.bytes_up), "flops": row.flops, "joules": row.joules}[kind]


def _busiest_reaches(limit: float, rows: Sequence[RoundRow], clients: int) -> int:
    """Return the rounds after which the most often selected of ``clients`` has spent the limit.

    With random selection, a client participates λ times in expectation and the busiest of K clients about
    λ + √(2 λ ln K) times: the normal approximation of the maximum of K Poisson variables.
    """
    participations = sum(row.participants for row in rows)
    if not participations:
        return 0
    times = limit * participations / sum(row.bytes_down + row.bytes_up for row in rows)
    spread = math.sqrt(2 * math.log(clients)) if clients > participations / len(rows) else 0.0
    root = (math.sqrt(spread**2 + 4 * times) - spread) / 2
    return math.floor(root**2 * clients * len(rows) / participations)
