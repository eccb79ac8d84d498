"""``sweep:``: the settings that a sweep of the scenario tries."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from edgefl.options import Options

Metric = Literal["accuracy", "best", "ema"]


class HalvingSpec(Options):
    """Successive halving: all settings train a little, the best of them go on, and so on, until one is left.

    Source: Jamieson and Talwalkar, Non-stochastic Best Arm Identification and Hyperparameter Optimization, 2016.
    """

    of: Literal["rounds", "seconds"] = Field(
        default="rounds", description="what the settings are given alike: rounds, or seconds of virtual time"
    )
    least: Annotated[float, Field(gt=0)] = Field(description="how much of it each setting gets at first")
    factor: Annotated[int, Field(ge=2)] = Field(
        default=3, description="one of so many settings goes on, and gets so many times as much"
    )
    metric: Metric = Field(default="accuracy", description="accuracy of the last model, the best, or the average (ema)")

    @model_validator(mode="after")
    def _at_least_a_round(self) -> Self:
        if self.of == "rounds" and self.least < 1:
            raise ValueError(f"expected at least 1 round, found least: {self.least:g}")
        return self


class OptunaSpec(Options):
    """Settings proposed by optuna's tree-structured Parzen estimator, which learns from those that were tried."""

    trials: Annotated[int, Field(ge=1)] = Field(description="settings to try for each method")
    together: Annotated[int, Field(ge=1)] = Field(
        default=4, description="settings proposed at a time; part of the search, whatever the number of processors"
    )
    seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(default=0, description="the proposals' random seed")
    metric: Metric = Field(default="accuracy", description="accuracy of the last model, the best, or the average (ema)")


class RangeSpec(Options):
    """Numbers from low to high."""

    low: float = Field(description="the least value")
    high: float = Field(description="the greatest value")
    log: bool = Field(default=False, description="spread by ratios, not by differences")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"expected low below high, found {self.low:g} and {self.high:g}")
        if self.log and self.low <= 0:
            raise ValueError(f"expected low above 0 with log, found {self.low:g}")
        return self


class SweepSpec(Options):
    """Values to try, every combination of them or some drawn at random."""

    grid: dict[str, Annotated[tuple[Any, ...], Field(min_length=1)]] = Field(
        default_factory=dict, description="for each dotted path (as in --set) the values to try"
    )
    random: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="try only so many of the combinations, drawn once for all; null: every one"
    )
    ranges: dict[str, RangeSpec] = Field(
        default_factory=dict, description="for each dotted path the numbers to try; for optuna"
    )
    halving: HalvingSpec | None = Field(default=None, description="successive halving; null: every setting to its end")
    optuna: OptunaSpec | None = Field(default=None, description="proposals by optuna; null: the grid itself")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if not self.grid and not self.ranges:
            raise ValueError("expected values to try, in grid or ranges")
        if self.optuna is not None and (self.halving is not None or self.random is not None):
            raise ValueError("optuna proposes settings itself: leave out random and halving")
        if self.ranges and self.optuna is None:
            raise ValueError("ranges are for optuna; expected a section optuna, or values in grid")
        return self
