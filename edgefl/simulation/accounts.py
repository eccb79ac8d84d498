"""What a run has spent, as in the log; its budgets, its targets, and how it ends."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import simpy
from pydantic import Field

from edgefl.fleet import FleetAssignment
from edgefl.fleet.battery import Charges
from edgefl.options import Options
from edgefl.record.events import EventLog
from edgefl.record.figures import PRICED, Totals
from edgefl.record.metric import Metric
from edgefl.units import Flops, Joules, Seconds, TrafficBytes, at_most


class BudgetSpec(Options, allow_inf_nan=False):
    """Limits on what a run may spend; a kind that is missing or null is not limited.

    >>> BudgetSpec(seconds="2 min", bytes="1 GB").limits()
    {'seconds': 120.0, 'bytes': 1000000000.0}
    """

    seconds: Seconds | None = Field(None, gt=0, description="virtual seconds")
    bytes: TrafficBytes | None = Field(None, gt=0, description="bytes of all clients, down and up")
    client_bytes: TrafficBytes | None = Field(None, gt=0, description="bytes that any one client receives and sends")
    flops: Flops | None = Field(None, gt=0, description="FLOPs of all clients")
    joules: Joules | None = Field(None, gt=0, description="joules drawn by all clients")

    def limits(self) -> dict[str, float]:
        return {kind: limit for kind in type(self).model_fields if (limit := getattr(self, kind)) is not None}


@dataclass
class Target:
    """A value of the metric to reach, and what had been spent when it was first reached."""

    value: float
    reached: Totals | None = None


@dataclass
class Budget:
    """A limit, and the metric after the last evaluated round within it."""

    kind: str
    limit: float
    exhausted: bool = False
    within: float | None = None


class Limits:
    """The budgets and targets of one run; if ``smoothed``, targets refer to the metric's moving average."""

    def __init__(
        self, budgets: Mapping[str, float], targets: Iterable[float], metric: Metric, *, smoothed: bool = False
    ) -> None:
        self.budgets = [Budget(kind, limit) for kind, limit in budgets.items()]
        self.targets = [Target(value) for value in targets]
        self.metric, self._smoothed = metric, smoothed

    @property
    def seconds(self) -> Budget | None:
        return next((budget for budget in self.budgets if budget.kind == "seconds"), None)

    def round_ended(self, spent: Totals, metric: float, ema: float) -> list[Target]:
        """Record what was spent up to a round's end; return the targets that it reached for the first time."""
        for budget in self.budgets:
            if not budget.exhausted and at_most(spent[budget.kind], budget.limit) and not math.isnan(metric):
                budget.within = metric
        level = ema if self._smoothed else metric
        reached = [each for each in self.targets if each.reached is None and self.metric.reaches(level, each.value)]
        for target in reached:
            target.reached = spent
        return reached

    @property
    def all_reached(self) -> bool:
        return bool(self.targets) and all(target.reached for target in self.targets)


class Accounts:
    """Totals, batteries and budgets; ``stopped`` triggers with the reason, unless ``goes_on``, also at a budget."""

    def __init__(
        self, env: simpy.Environment, log: EventLog, fleet: FleetAssignment, seed: int, limits: Limits, *, goes_on: bool
    ) -> None:
        self.totals = Totals()
        self.charges = Charges([each.battery for each in fleet.profiles], fleet.group, seed)
        self.stopped: simpy.Event = env.event()
        self._env, self._log, self._limits, self._goes_on = env, log, limits, goes_on

    def drew(self, client: int, joules: float) -> None:
        self.totals.charge("joules", joules)
        self.charges.draw(client, joules, self._env.now)

    def check(self) -> None:
        for budget in self._limits.budgets:
            summed = budget.kind not in PRICED and not budget.exhausted
            if summed and not at_most(self.totals[budget.kind], budget.limit):
                self.exhaust(budget)

    @property
    def priced(self) -> list[Budget]:
        """The budgets in grams and euros that are left; :class:`~edgefl.simulation.power.Meter` checks them."""
        return [each for each in self._limits.budgets if each.kind in PRICED and not each.exhausted]

    def exhaust(self, budget: Budget) -> None:
        """The run has spent more than a budget, or as much time."""
        budget.exhausted = True
        self._log.write(self._env.now, "budget", item=budget.kind, value=budget.limit)
        if not self._goes_on:
            self.stop(budget.kind)

    def stop(self, reason: str) -> None:
        """End the run at this instant, once."""
        if not self.stopped.triggered:
            self.stopped.succeed(reason)
