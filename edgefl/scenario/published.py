"""``published:``: a paper's results for the experiment of a scenario."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from edgefl.options import Options
from edgefl.units import Bytes, Seconds

Metric = Literal[
    "accuracy",
    "accuracy_best",
    "accuracy_ema",
    "accuracy_personalised",
    "accuracy_gain",
    "loss",
    "rounds_to",
    "seconds_to",
    "bytes_to",
    "rounds",
    "seconds",
    "seconds_a_round",
    "bytes",
]
OF_CLIENTS = ("accuracy_personalised", "accuracy_gain")
"""Metrics that exist only at the end of a run."""


class Published(Options):
    """One number of a paper, or a rank if the paper shows an order without numbers.

    >>> Published(method="fedavg", metric="rounds_to", accuracy=0.4, value=428, source="Table 2").value
    428.0
    """

    method: str = Field(
        description="the label of the method here; with `mean_of`, the name of the mean in the comparison"
    )
    mean_of: tuple[str, ...] = Field(default=(), description="labels of the methods whose mean the number is")
    metric: Metric = Field(
        description="accuracy (of the last model, or at `round`), its best or its moving average, the clients' "
        "accuracy after personalisation or its gain (over all samples); loss; rounds, seconds or bytes (both "
        "directions) of the whole run, or to an `accuracy`; seconds per round"
    )
    value: float | None = Field(default=None, description="the number in base units; accuracies in [0, 1]")
    spread: Annotated[float, Field(ge=0)] | None = Field(default=None, description="the paper's value after ±")
    more_than: bool = Field(default=False, description="the paper states only that it is more than the value (1000+)")
    less_than: bool = Field(default=False, description="the paper states only that it is less than the value")
    rank: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="rank among the methods (1: best) if the paper shows an order without numbers"
    )
    round: Annotated[int, Field(ge=1)] | None = Field(default=None, description="the round; null: the last")
    seconds: Seconds | None = Field(default=None, description="limit on the run's seconds; null: no limit")
    bytes: Bytes | None = Field(default=None, description="limit on bytes in both directions; null: no limit")
    accuracy: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="the accuracy to reach, by target_metric; for rounds_to, seconds_to and bytes_to"
    )
    source: str = Field(min_length=1, description="the paper and its table or figure")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.value is None) == (self.rank is None):
            raise ValueError("expected either value or rank")
        if self.more_than and self.less_than:
            raise ValueError("expected more_than or less_than, not both")
        if self.metric.endswith("_to") != (self.accuracy is not None):
            raise ValueError(f"{self.metric} {'needs' if self.accuracy is None else 'has no'} accuracy")
        if self.metric in OF_CLIENTS and (self.round, self.seconds, self.bytes) != (None, None, None):
            raise ValueError(f"{self.metric} exists only for the last model; remove round, seconds and bytes")
        return self
