"""``targets:``: values of the task's metric to reach."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import Field, model_validator

from edgefl.errors import UserError
from edgefl.options import Options
from edgefl.record.metric import Metric

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class TargetSpec(Options):
    """A value of the metric to reach."""

    metric: str = Field(description="the task's metric")
    at_least: Positive | None = Field(default=None, description="the value, if higher values are better")
    at_most: Positive | None = Field(default=None, description="the value, if lower values are better")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("expected either at_least or at_most")
        return self

    @property
    def value(self) -> float:
        """The value."""
        return self.at_least or self.at_most or 0.0


Target = Annotated[float, Field(gt=0, le=1)] | TargetSpec


def values_of(targets: Sequence[Target]) -> list[float]:
    """The values of targets."""
    return [target.value if isinstance(target, TargetSpec) else target for target in targets]


def check_targets(targets: Sequence[Target], metric: Metric) -> None:
    """Check that targets are of the task's metric.

    Raises:
        UserError: one is of another metric or in the wrong direction.
    """
    bound = "at_least" if metric.better == "higher" else "at_most"
    for index, target in enumerate(targets):
        field = f"targets.{index}"
        if not isinstance(target, TargetSpec):
            if not metric.is_accuracy:
                raise UserError(
                    f"a number is a share of accuracy, and the task's metric is {metric.name}; expected "
                    f"{{metric: {metric.name}, {bound}: …}}, found {target:g}",
                    field=field,
                )
            continue
        if target.metric != metric.name:
            message = f"expected {metric.name}, the task's metric, found {target.metric}"
            raise UserError(message, field=f"{field}.metric")
        if getattr(target, bound) is None:
            raise UserError(
                f"expected {bound}, because {metric.better} values of {metric.name} are better", field=field
            )
        if metric.share and target.value > 1:
            raise UserError(f"expected a share in (0, 1], found {target.value:g}", field=f"{field}.{bound}")
