"""``sweep:``: the settings that a sweep of the scenario tries."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from edgefl.options import Options

Metric = Literal["accuracy", "best", "ema"]


class HalvingSpec(Options):
    """Successive halving: all settings train a little, only the best continue, and so on until one is left.

    Source: Jamieson and Talwalkar, Non-stochastic Best Arm Identification and Hyperparameter Optimization, 2016.
    """

    of: Literal["rounds", "seconds"] = Field(
        default="rounds", description="the resource to divide: rounds, or seconds of virtual time"
    )
    least: Annotated[float, Field(gt=0)] = Field(description="the amount of it for each setting in the first step")
    factor: Annotated[int, Field(ge=2)] = Field(
        default=3, description="one in `factor` settings continues, with `factor` times the amount"
    )
    metric: Metric = Field(
        default="accuracy",
        description="accuracy (or the task's metric) of the last model, the best one, or the moving average (ema)",
    )

    @model_validator(mode="after")
    def _at_least_a_round(self) -> Self:
        if self.of == "rounds" and self.least < 1:
            raise ValueError(f"expected at least 1 round, found least: {self.least:g}")
        return self


class OptunaSpec(Options):
    """Settings proposed by optuna's tree-structured Parzen estimator from the results of earlier settings."""

    trials: Annotated[int, Field(ge=1)] = Field(description="settings to try for each method")
    together: Annotated[int, Field(ge=1)] = Field(
        default=4, description="settings proposed at a time; part of the search, whatever the number of processors"
    )
    seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(default=0, description="the proposals' random seed")
    metric: Metric = Field(
        default="accuracy",
        description="accuracy (or the task's metric) of the last model, the best one, or the moving average (ema)",
    )


class RangeSpec(Options):
    """Numbers from low to high."""

    low: float = Field(description="the least value")
    high: float = Field(description="the greatest value")
    log: bool = Field(default=False, description="use a logarithmic scale")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"expected low below high, found {self.low:g} and {self.high:g}")
        if self.log and self.low <= 0:
            raise ValueError(f"expected low above 0 with log, found {self.low:g}")
        return self


class SweepSpec(Options):
    """Values to try: all combinations, or some drawn at random."""

    grid: dict[str, Annotated[tuple[Any, ...], Field(min_length=1)]] = Field(
        default_factory=dict, description="for each dotted path (as in --set) the values to try"
    )
    random: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="number of combinations to try, drawn once for all methods; null: all"
    )
    ranges: dict[str, RangeSpec] = Field(
        default_factory=dict, description="for each dotted path the numbers to try; for optuna"
    )
    halving: HalvingSpec | None = Field(
        default=None, description="successive halving; null: run every setting to its end"
    )
    optuna: OptunaSpec | None = Field(default=None, description="proposals by optuna; null: the grid itself")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if not self.grid and not self.ranges:
            raise ValueError("expected values to try, in grid or ranges")
        if self.optuna is not None and (self.halving is not None or self.random is not None):
            raise ValueError("optuna proposes settings itself; remove random and halving")
        if self.ranges and self.optuna is None:
            raise ValueError("ranges need a section optuna; expected it, or values in grid")
        return self
