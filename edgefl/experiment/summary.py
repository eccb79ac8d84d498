"""The summary of one run: its entry in ``summary.json``."""

from __future__ import annotations

import math
from typing import Any

from edgefl.record.kinds import LOST, Lost
from edgefl.record.summary import (
    Accuracy,
    Blocks,
    BudgetResult,
    Bytes,
    Communication,
    EnsembleResult,
    SeedResult,
    Stop,
    TargetResult,
)
from edgefl.simulation.ledger import Ledger
from edgefl.simulation.limits import Budget, Standing, Target
from edgefl.simulation.run import Outcome


def summarise(outcome: Outcome, seed: int, *, block_wise: bool, why: str | None = None) -> SeedResult:
    """Return one run's entry.

    Args:
        outcome: the result of the run.
        seed: the run's seed.
        block_wise: whether the method sends blocks, so that their bytes are reported in both ways of counting.
        why: the reason for an early end, in words.
    """
    spent = outcome.spent
    return SeedResult(
        seed=seed,
        stop=Stop(reason=outcome.reason, round=outcome.rounds, **_present(message=why)),
        accuracy=Accuracy(final=number(outcome.final.accuracy), best=number(outcome.best), ema=number(outcome.ema)),
        seconds=outcome.seconds,
        rounds=outcome.rounds,
        rounds_without_update=sum(not row.aggregated for row in outcome.rows),
        refused=sum(row.refused for row in outcome.rows),
        flops=spent.flops,
        joules=spent.joules,
        bytes=_bytes(spent),
        client_bytes=int(spent.client_bytes),
        communication=Communication(exposed_seconds=spent.exposed_seconds, hidden_seconds=spent.hidden_seconds),
        targets=tuple(_target(target) for target in outcome.limits.targets),
        budgets=tuple(_budget(budget) for budget in outcome.limits.budgets),
        **_present(ensemble=_ensemble(outcome), blocks=_blocks(outcome) if block_wise else None),
    )


def number(value: float) -> float | None:
    """Return the number, or ``None`` if JSON cannot represent it."""
    return value if math.isfinite(value) else None


def _present(**figures: Any) -> dict[str, Any]:
    """Return the figures that are not ``None``; the others have no key in the summary."""
    return {name: value for name, value in figures.items() if value is not None}


def _ensemble(outcome: Outcome) -> EnsembleResult | None:
    if not math.isfinite(outcome.final.ensemble):
        return None
    known = [row.accuracy_ensemble for row in outcome.rows if math.isfinite(row.accuracy_ensemble)]
    return EnsembleResult(final=outcome.final.ensemble, best=max([*known, outcome.final.ensemble]))


def _blocks(outcome: Outcome) -> Blocks:
    spent = outcome.spent
    return Blocks(
        actual=sum(row.blocks_actual for row in outcome.rows),
        uniform=sum(row.blocks_uniform for row in outcome.rows),
        front_age=spent.front_block_rounds / spent.front_blocks if spent.front_blocks else None,
        makespan_over_least=spent.foreseen_seconds / spent.least_seconds if spent.least_seconds else None,
    )


def _bytes(spent: Ledger) -> Bytes:
    return Bytes(
        down=int(spent.bytes_down),
        up=int(spent.bytes_up),
        useful=int(spent.bytes_useful),
        wasted=int(spent.bytes - spent.bytes_useful),
        by_fate=_fates(spent),
        **_present(backhaul=int(spent.bytes_backhaul) or None),
    )


def _fates(spent: Ledger) -> dict[Lost, int]:
    """Return the wasted bytes by reason; they sum to ``wasted``."""
    fates: dict[Lost, int] = {fate: int(getattr(spent, f"bytes_{fate}")) for fate in LOST if fate != "unfinished"}
    return {**fates, "unfinished": int(spent.bytes - spent.bytes_useful) - sum(fates.values())}


def _target(target: Target) -> TargetResult:
    at = target.reached
    if at is None:
        never = dict.fromkeys(("seconds", "bytes", "rounds", "flops", "joules"))
        return TargetResult(accuracy=target.accuracy, reached=False, **never)
    return TargetResult(
        accuracy=target.accuracy,
        reached=True,
        seconds=at.seconds,
        bytes=int(at.spent.bytes),
        rounds=at.round,
        flops=at.spent.flops,
        joules=at.spent.joules,
    )


def _budget(budget: Budget) -> BudgetResult:
    at: Standing | None = budget.within
    return BudgetResult(kind=budget.kind, limit=budget.limit, accuracy=None if at is None else number(at.accuracy))
