"""The summary of one run: its entry in ``summary.json``."""

from __future__ import annotations

import math
from typing import Any

from edgefl.record.kinds import LOST, Lost
from edgefl.record.metric import Metric
from edgefl.record.summary import (
    Accuracy,
    Blocks,
    BudgetResult,
    Bytes,
    Communication,
    EnsembleResult,
    MetricResult,
    SeedResult,
    Stop,
    TargetResult,
    Transfers,
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
    spent, metric = outcome.spent, outcome.limits.metric
    values = {"final": number(outcome.final.metric), "best": number(outcome.best), "ema": number(outcome.ema)}
    return SeedResult(
        seed=seed,
        stop=Stop(reason=outcome.reason, round=outcome.rounds, **_present(message=why)),
        accuracy=Accuracy(**(values if metric.is_accuracy else dict.fromkeys(values))),
        metric=MetricResult(**metric.named._asdict(), **values),
        seconds=outcome.seconds,
        rounds=outcome.rounds,
        rounds_without_update=sum(not row.aggregated for row in outcome.rows),
        refused=sum(row.refused for row in outcome.rows),
        flops=spent.flops,
        joules=spent.joules,
        bytes=_bytes(spent),
        client_bytes=int(spent.client_bytes),
        communication=Communication(exposed_seconds=spent.exposed_seconds, hidden_seconds=spent.hidden_seconds),
        targets=tuple(_target(target, metric) for target in outcome.limits.targets),
        budgets=tuple(_budget(budget, metric) for budget in outcome.limits.budgets),
        **_present(transfers=_transfers(spent) if outcome.timeouts else None),
        **_present(ratio_to_optimum=_ratio_to_optimum(outcome)),
        **_present(ensemble=_ensemble(outcome), blocks=_blocks(outcome) if block_wise else None),
    )


def number(value: float) -> float | None:
    """Return the number, or ``None`` if JSON cannot represent it."""
    return value if math.isfinite(value) else None


def _present(**figures: Any) -> dict[str, Any]:
    """Return the figures that are not ``None``; the others have no key in the summary."""
    return {name: value for name, value in figures.items() if value is not None}


def _ratio_to_optimum(outcome: Outcome) -> float | None:
    known = [row.ratio_to_optimum for row in outcome.rows if math.isfinite(row.ratio_to_optimum)]
    return math.fsum(known) / len(known) if known else None


def _ensemble(outcome: Outcome) -> EnsembleResult | None:
    if not math.isfinite(outcome.final.ensemble):
        return None
    known = [row.metric_ensemble for row in outcome.rows if math.isfinite(row.metric_ensemble)]
    best = outcome.limits.metric.best(*known, outcome.final.ensemble)
    return EnsembleResult(final=outcome.final.ensemble, best=best)


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


def _transfers(spent: Ledger) -> Transfers:
    return Transfers(breaks=spent.breaks, retries=spent.repeats, failed=spent.failures)


def _fates(spent: Ledger) -> dict[Lost, int]:
    """Return the wasted bytes by reason; they sum to ``wasted``."""
    counted = [fate for fate in LOST if fate != "unfinished" and (fate != "broken" or spent.breaks)]
    fates: dict[Lost, int] = {fate: int(getattr(spent, f"bytes_{fate}")) for fate in counted}
    return {**fates, "unfinished": int(spent.bytes - spent.bytes_useful) - sum(fates.values())}


def _target(target: Target, metric: Metric) -> TargetResult:
    at = target.reached
    aim: dict[str, Any] = {"metric": metric.name, "value": target.value}
    if metric.is_accuracy:
        aim = {"accuracy": target.value, **aim}
    if at is None:
        never = dict.fromkeys(("seconds", "bytes", "rounds", "flops", "joules"))
        return TargetResult(**aim, reached=False, **never)
    return TargetResult(
        **aim,
        reached=True,
        seconds=at.seconds,
        bytes=int(at.spent.bytes),
        rounds=at.round,
        flops=at.spent.flops,
        joules=at.spent.joules,
    )


def _budget(budget: Budget, metric: Metric) -> BudgetResult:
    at: Standing | None = budget.within
    value = None if at is None else number(at.metric)
    accuracy = value if metric.is_accuracy else None
    return BudgetResult(kind=budget.kind, limit=budget.limit, accuracy=accuracy, metric=value)
