"""The summary of one run: its entry in ``summary.json``, and the reason for an early end, in words."""

import math
from collections import Counter
from typing import Any

from edgefl.record.events import Event, Listener
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
from edgefl.simulation.accounts import Budget, Ledger, Standing, Target
from edgefl.simulation.rounds import STALL_ROUNDS
from edgefl.simulation.run import Outcome
from edgefl.wording import counted


def summarise(outcome: Outcome, seed: int, *, block_wise: bool, why: str | None = None) -> SeedResult:
    """Return one run's entry.

    ``block_wise`` reports the bytes of blocks in both ways of counting; ``why`` is the reason for an early end.
    """
    spent, metric = outcome.spent, outcome.limits.metric
    transfers = Transfers(breaks=spent.breaks, retries=spent.repeats, failed=spent.failures)
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
        **_present(transfers=transfers if outcome.timeouts else None),
        **_present(ratio_to_optimum=_ratio_to_optimum(outcome)),
        **_present(ensemble=_ensemble(outcome), blocks=_blocks(outcome) if block_wise else None),
        **_present(batteries=outcome.batteries or None, absent=outcome.absent),
    )


def number(value: float) -> float | None:
    """Return the number, or ``None`` if JSON cannot represent it."""
    return value if math.isfinite(value) else None


def _present(**figures: Any) -> dict[str, Any]:
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


def _fates(spent: Ledger) -> dict[Lost, int]:
    counted = [fate for fate in LOST if fate != "unfinished" and (fate != "broken" or spent.breaks)]
    fates: dict[Lost, int] = {fate: int(getattr(spent, f"bytes_{fate}")) for fate in counted}
    return {**fates, "unfinished": int(spent.bytes - spent.bytes_useful) - sum(fates.values())}


def _target(target: Target, metric: Metric) -> TargetResult:
    at = target.reached
    aim: dict[str, Any] = {"metric": metric.name, "value": target.value}
    if metric.is_accuracy:
        aim = {"accuracy": target.value, **aim}
    figures: dict[str, Any] = dict.fromkeys(("seconds", "bytes", "rounds", "flops", "joules"))
    if at is not None:
        figures = {name: getattr(at.spent, name) for name in ("flops", "joules")}
        figures |= {"seconds": at.seconds, "bytes": int(at.spent.bytes), "rounds": at.round}
    return TargetResult(**aim, reached=at is not None, **figures)


def _budget(budget: Budget, metric: Metric) -> BudgetResult:
    at: Standing | None = budget.within
    value = None if at is None else number(at.metric)
    accuracy = value if metric.is_accuracy else None
    return BudgetResult(kind=budget.kind, limit=budget.limit, accuracy=accuracy, metric=value)


_READ = frozenset({"stalled", "diverged", "aggregation", "refused", "dropout", "lost", "transfer_drop"})


class EarlyEnd(Listener):
    """The reason for a run's early end, in words; keeps the facts for it. Rounds after ``rounds`` do not count."""

    def __init__(self, rounds: float = math.inf) -> None:
        self._rounds = rounds
        self._stated: str | None = None
        self._in_vain: Counter[str] = Counter()
        self._broken_off = -1.0

    def events(self, rows: list[Event]) -> None:
        for event in [event for event in rows if event.kind in _READ]:
            match event.kind:
                case "stalled" | "diverged":
                    self._stated = event.facts["reason"]
                case "transfer_drop":
                    self._broken_off = event.time
                case _ if event.round > self._rounds:
                    continue
                case "aggregation" if event.value:
                    self._in_vain.clear()
                case "refused":
                    self._in_vain["were refused (not enough memory)"] += 1
                case "dropout":
                    self._in_vain[f"dropped out ({event.item})"] += 1
                case "lost" if event.item == "late":
                    self._in_vain["were late"] += 1

    def why(self, outcome: Outcome) -> str | None:
        """The sentence; ``None`` if the stop reason is sufficient."""
        if outcome.fault is not None:
            return str(outcome.fault)
        if outcome.untrained is not None:
            return f"trained for {counted(outcome.rounds, 'round')} only; {outcome.untrained}"
        if outcome.reason != "stalled" or self._stated is not None:
            return self._stated
        last = outcome.rows[-STALL_ROUNDS:]
        if len(last) == STALL_ROUNDS and not any(row.aggregated for row in last):
            return f"no update arrived in {STALL_ROUNDS} consecutive rounds{self.fates()}"
        if self._broken_off == outcome.seconds:
            return "all active transfers are on links with zero capacity"
        return f"no client is available{self.fates()}"

    def fates(self) -> str:
        """The fates of the clients picked since the last update that arrived, the most frequent first."""
        fates = ", ".join(f"{count} {fate}" for fate, count in self._in_vain.most_common())
        return fates and f": {fates}"
