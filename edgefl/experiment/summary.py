"""The summary of one run: its entry in ``summary.json``, and the reason for an early end, in words."""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from edgefl.record.events import Event, Listener
from edgefl.record.figures import QUANTITIES, Floats, Totals, figures, finite, totals_of
from edgefl.record.metric import Metric
from edgefl.record.rounds import columns_of
from edgefl.record.summary import BudgetResult, MetricResult, SeedResult, Stop, TargetResult, Values
from edgefl.simulation.accounts import Budget, Target
from edgefl.simulation.rounds import STALL_ROUNDS
from edgefl.simulation.run import Outcome
from edgefl.wording import counted


def summarise(outcome: Outcome, seed: int, *, block_wise: bool, why: str | None = None) -> SeedResult:
    """One run's entry: its figures, with those of blocks if ``block_wise``; ``why`` explains an early end."""
    metric, rounds, limits = outcome.limits.metric, columns_of(outcome.rows), outcome.limits
    totals = Totals({**outcome.spent, "ratio_to_optimum": totals_of(rounds)["ratio_to_optimum"]})
    groups = ["blocks"] * block_wise + ["timeouts"] * outcome.timeouts
    groups += ["peers"] * math.isfinite(outcome.final.worst)
    values = {"final": finite(outcome.final.metric), "best": finite(outcome.best), "ema": finite(outcome.ema)}
    others: dict[str, Any] = {
        "batteries": outcome.batteries or None,
        "absent": outcome.absent,
        "ensemble": _ensemble(outcome, rounds),
    }
    others |= {"breakdown": outcome.breakdown, "secure_aggregation": outcome.secure, "privacy": outcome.privacy}
    return SeedResult(
        seed=seed,
        stop=Stop(reason=outcome.reason, round=outcome.rounds, **({} if why is None else {"message": why})),
        accuracy=Values(**(values if metric.is_accuracy else dict.fromkeys(values))),
        metric=MetricResult(**metric._replace(title=metric.word)._asdict(), **values),
        targets=tuple(_target(target, metric, totals) for target in limits.targets),
        budgets=tuple(_budget(budget, metric) for budget in limits.budgets),
        **figures(totals, groups),
        **{name: value for name, value in others.items() if value is not None},
    )


def _ensemble(outcome: Outcome, rounds: Mapping[str, Floats]) -> Values | None:
    if not math.isfinite(outcome.final.ensemble):
        return None
    known = rounds["metric_ensemble"][np.isfinite(rounds["metric_ensemble"])].tolist()
    best = outcome.limits.metric.best(*known, outcome.final.ensemble)
    return Values(final=outcome.final.ensemble, best=best)


def _target(target: Target, metric: Metric, totals: Totals) -> TargetResult:
    aim = {"metric": metric.name, "value": target.value, **({"accuracy": target.value} if metric.is_accuracy else {})}
    axes = [each for each in QUANTITIES.values() if each.axis and each.is_of(totals)]
    spent = {each.name: None if target.reached is None else each.written(target.reached) for each in axes}
    return TargetResult(**aim, reached=target.reached is not None, **spent)


def _budget(budget: Budget, metric: Metric) -> BudgetResult:
    values = {"metric": (value := finite(budget.within)), "accuracy": value if metric.is_accuracy else None}
    return BudgetResult(kind=budget.kind, limit=budget.limit, **values)


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
