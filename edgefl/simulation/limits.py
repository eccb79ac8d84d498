"""Budgets that end a run, and targets."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated

from pydantic import Field

from edgefl.options import Options
from edgefl.record.kinds import BUDGETS, BudgetKind
from edgefl.record.metric import Metric
from edgefl.simulation.ledger import Ledger
from edgefl.units import Bytes, Flops, Joules, Seconds


class BudgetSpec(Options, allow_inf_nan=False):
    """Limits on what a run may spend; a kind that is missing or null is not limited.

    >>> BudgetSpec(seconds="2 min", bytes="1 GB").limits()
    {'seconds': 120.0, 'bytes': 1000000000.0}
    """

    seconds: Annotated[Seconds, Field(gt=0)] | None = Field(default=None, description="virtual seconds")
    bytes: Annotated[Bytes, Field(gt=0)] | None = Field(
        default=None, description="bytes of all clients together, down and up"
    )
    client_bytes: Annotated[Bytes, Field(gt=0)] | None = Field(
        default=None, description="bytes that any one client receives and sends"
    )
    flops: Annotated[Flops, Field(gt=0)] | None = Field(default=None, description="FLOPs of all clients' training")
    joules: Annotated[Joules, Field(gt=0)] | None = Field(default=None, description="joules drawn by all clients")

    def limits(self) -> dict[BudgetKind, float]:
        return {kind: limit for kind in BUDGETS if (limit := getattr(self, kind)) is not None}


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a run at the end of a round: the model's metric, and the amounts spent so far."""

    round: int
    seconds: float
    spent: Ledger
    metric: float
    ema: float


@dataclass
class Target:
    """A value of the metric to reach, and the state of the run when it was first reached."""

    value: float
    reached: Standing | None = None


@dataclass
class Budget:
    """A limit, and the state of the run after the last evaluated round within it."""

    kind: BudgetKind
    limit: float
    exhausted: bool = False
    within: Standing | None = None

    def allows(self, standing: Standing) -> bool:
        spent = standing.seconds if self.kind == "seconds" else standing.spent.of(self.kind)
        return spent <= self.limit


class Limits:
    """The budgets and targets of one run; if ``smoothed``, targets refer to the metric's moving average."""

    def __init__(
        self, budgets: Mapping[BudgetKind, float], targets: Iterable[float], metric: Metric, *, smoothed: bool = False
    ) -> None:
        self.budgets = [Budget(kind, limit) for kind, limit in budgets.items()]
        self.targets = [Target(value) for value in targets]
        self.metric = metric
        self._smoothed = smoothed
        # The budget on seconds is a timer.
        self._counted = [(budget, attrgetter(budget.kind)) for budget in self.budgets if budget.kind != "seconds"]

    @property
    def seconds(self) -> Budget | None:
        return next((budget for budget in self.budgets if budget.kind == "seconds"), None)

    def newly_exhausted(self, spent: Ledger) -> list[Budget]:
        """Budgets that the ledger has newly exceeded; each is returned once."""
        crossed = [budget for budget, of in self._counted if of(spent) > budget.limit]
        if crossed:
            for budget in crossed:
                budget.exhausted = True
            self._counted = [(budget, of) for budget, of in self._counted if not budget.exhausted]
        return crossed

    def round_ended(self, standing: Standing) -> list[Target]:
        """Record a round's end; return the targets that it reached for the first time."""
        for budget in self.budgets:
            if budget.allows(standing) and not math.isnan(standing.metric):
                budget.within = standing
        level = standing.ema if self._smoothed else standing.metric
        reached = [each for each in self.targets if each.reached is None and self.metric.reaches(level, each.value)]
        for target in reached:
            target.reached = standing
        return reached

    @property
    def all_reached(self) -> bool:
        return bool(self.targets) and all(target.reached for target in self.targets)
