"""``published:``: what a paper reports of the experiment that a scenario describes."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Metric = Literal[
    "accuracy", "accuracy_best", "accuracy_ema", "rounds_to", "seconds_to", "bytes_to", "rounds", "seconds", "bytes"
]


class Published(BaseModel):
    """One number of a paper, or a place in its order where it prints no number.

    >>> Published(method="fedavg", metric="rounds_to", accuracy=0.4, value=428, source="Table 2").value
    428.0
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: str = Field(description="the label of the method here")
    metric: Metric = Field(
        description="accuracy (of the last model, or at `round`), its best or its moving average; rounds, seconds or "
        "bytes (both ways) of the whole run, or to an `accuracy`"
    )
    value: float | None = Field(default=None, description="the number in base units; accuracies in [0, 1]")
    spread: Annotated[float, Field(ge=0)] | None = Field(default=None, description="what the paper prints after ±")
    more_than: bool = Field(default=False, description="the paper says only that it is more than the value (1000+)")
    rank: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="place among the methods, 1 the best, where the paper shows an order without numbers"
    )
    round: Annotated[int, Field(ge=1)] | None = Field(default=None, description="after which round; null: the last")
    accuracy: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="what is reached, by target_metric; for rounds_to, seconds_to and bytes_to"
    )
    source: str = Field(min_length=1, description="the paper and its table or figure")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.value is None) == (self.rank is None):
            raise ValueError("expected either value or rank")
        if self.metric.endswith("_to") != (self.accuracy is not None):
            raise ValueError(f"{self.metric} {'needs' if self.accuracy is None else 'has no'} accuracy")
        return self
