"""The summary of one run: its entry in ``summary.json``."""

from __future__ import annotations

import math
from typing import Any

from edgefl.simulation.ledger import Ledger
from edgefl.simulation.limits import Budget, Standing, Target
from edgefl.simulation.run import Outcome


def summarise(outcome: Outcome, seed: int, *, block_wise: bool, why: str | None = None) -> dict[str, Any]:
    """One run's entry.

    Args:
        outcome: what the run came to.
        seed: its seed.
        block_wise: the method sends blocks; both ways to count their bytes are reported then.
        why: what ended the run before it was to, in words.
    """
    spent = outcome.spent
    entry: dict[str, Any] = {
        "seed": seed,
        "stop": {"reason": outcome.reason, "round": outcome.rounds},
        "accuracy": {
            "final": number(outcome.final.accuracy),
            "best": number(outcome.best),
            "ema": number(outcome.ema),
        },
        "seconds": outcome.seconds,
        "rounds": outcome.rounds,
        "rounds_without_update": sum(not row.aggregated for row in outcome.rows),
        "refused": sum(row.refused for row in outcome.rows),
        "flops": spent.flops,
        "joules": spent.joules,
        "bytes": {
            "down": int(spent.bytes_down),
            "up": int(spent.bytes_up),
            "useful": int(spent.bytes_useful),
            "wasted": int(spent.bytes - spent.bytes_useful),
            "by_fate": _fates(spent),
        },
        "client_bytes": int(spent.client_bytes),
        "communication": {"exposed_seconds": spent.exposed_seconds, "hidden_seconds": spent.hidden_seconds},
        "targets": [_target(target) for target in outcome.limits.targets],
        "budgets": [_budget(budget) for budget in outcome.limits.budgets],
    }
    if why is not None:
        entry["stop"]["message"] = why
    if spent.bytes_backhaul:
        entry["bytes"]["backhaul"] = int(spent.bytes_backhaul)
    if math.isfinite(outcome.final.ensemble):
        known = [row.accuracy_ensemble for row in outcome.rows if math.isfinite(row.accuracy_ensemble)]
        entry["ensemble"] = {"final": outcome.final.ensemble, "best": max([*known, outcome.final.ensemble])}
    if block_wise:
        entry["blocks"] = {
            "actual": sum(row.blocks_actual for row in outcome.rows),
            "uniform": sum(row.blocks_uniform for row in outcome.rows),
            "front_age": spent.front_block_rounds / spent.front_blocks if spent.front_blocks else None,
            "makespan_over_least": spent.foreseen_seconds / spent.least_seconds if spent.least_seconds else None,
        }
    return entry


def number(value: float) -> float | None:
    """The number, or ``None`` where JSON has none for it."""
    return value if math.isfinite(value) else None


def _fates(spent: Ledger) -> dict[str, int]:
    """What the wasted bytes were wasted on; they sum to ``wasted``."""
    fates = {
        "late": int(spent.bytes_late),
        "dropped": int(spent.bytes_dropped),
        "prefetched_in_vain": int(spent.bytes_prefetched_in_vain),
        "retried": int(spent.bytes_retried),
    }
    return {**fates, "unfinished": int(spent.bytes - spent.bytes_useful) - sum(fates.values())}


def _target(target: Target) -> dict[str, Any]:
    at = target.reached
    return {
        "accuracy": target.accuracy,
        "reached": at is not None,
        "seconds": at and at.seconds,
        "bytes": at and int(at.spent.bytes),
        "rounds": at and at.round,
        "flops": at and at.spent.flops,
        "joules": at and at.spent.joules,
    }


def _budget(budget: Budget) -> dict[str, Any]:
    at: Standing | None = budget.within
    return {"kind": budget.kind, "limit": budget.limit, "accuracy": None if at is None else number(at.accuracy)}
