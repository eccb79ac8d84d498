"""Learning rates that change over the rounds, or with every local step; a plain number does not change."""

import math
from abc import abstractmethod
from typing import Annotated, Literal, Self, TypeVar

from pydantic import BaseModel, Field, Tag, WithJsonSchema, model_validator

from edgefl.errors import UserError
from edgefl.options import Component, kind_or
from edgefl.validation import validated

Part = TypeVar("Part", bound=BaseModel)


class Rate(Component):
    """η(t) = value · min(1, t'/warmup) · s(t - warmup), t in rounds from 0, t' the end of the round or step at t."""

    value: float = Field(gt=0, allow_inf_nan=False, description="the rate after the warm-up")
    warmup: float = Field(default=0.0, ge=0, description="rounds in which the rate grows to value")
    over: Literal["rounds", "steps"] = Field("rounds", description="each round, or each local step (h of H is t + h/H)")

    def at(self, time: float, step: float = 1.0) -> float:
        """The rate at a time in rounds, for a round or for a step of that length.

        >>> linear = Linear(kind="linear", value=2, warmup=2, rounds=6)
        >>> [linear.at(round) for round in range(6)]
        [1.0, 2.0, 2.0, 1.5, 1.0, 0.5]
        """
        grown = min(1.0, (time + step) / self.warmup) if self.warmup else 1.0
        return self.value * grown * self.share(max(0.0, time - self.warmup))

    @abstractmethod
    def share(self, time: float) -> float:
        """The share s of ``value`` that is left so many rounds after the warm-up."""


class Constant(Rate):
    """No change after the warm-up."""

    kind: Literal["constant"] = "constant"

    def share(self, time: float) -> float:
        return 1.0


class Exponential(Rate):
    """s(t) = factor^t."""

    kind: Literal["exponential"]
    factor: float = Field(gt=0, le=1, description="share that is left after a round")

    def share(self, time: float) -> float:
        return float(self.factor**time)


class Stepwise(Rate):
    """s(t) = factor^⌊t/every⌋."""

    kind: Literal["step"]
    every: int = Field(ge=1, description="rounds between two changes")
    factor: float = Field(default=0.1, gt=0, le=1, description="share that is left after a change")

    def share(self, time: float) -> float:
        return self.factor ** math.floor(time / self.every)


class _Ending(Rate):
    end: float = Field(default=0.0, ge=0, le=1, description="share of value that is left at the end")
    rounds: int | None = Field(default=None, ge=1, description="rounds until the end; null: training.rounds")

    @model_validator(mode="after")
    def _ends_after_the_warmup(self) -> Self:
        if self.rounds is not None and self.warmup > self.rounds:
            raise ValueError(f"warmup: expected at most the {self.rounds} rounds of the rate, found {self.warmup:g}")
        return self

    def share(self, time: float) -> float:
        """Constant while the end is not known."""
        length = math.inf if self.rounds is None else max(self.rounds - self.warmup, 1.0)
        return self.end + (1 - self.end) * self.left(min(1.0, time / length))

    @abstractmethod
    def left(self, progress: float) -> float:
        """From 1 at the beginning to 0 at the end."""


class Cosine(_Ending):
    """s(t) = end + (1 - end) (1 + cos πp)/2, p the share of the rounds after the warm-up that have passed."""

    kind: Literal["cosine"]

    def left(self, progress: float) -> float:
        return (1 + math.cos(math.pi * progress)) / 2


class Linear(_Ending):
    """s(t) = end + (1 - end) (1 - p), p the share of the rounds after the warm-up that have passed."""

    kind: Literal["linear"]

    def left(self, progress: float) -> float:
        return 1 - progress


_KINDS = Constant, Exponential, Stepwise, Cosine, Linear
LearningRate = Annotated[
    Annotated[float, Field(gt=0, allow_inf_nan=False), Tag("number")]
    | Annotated[Constant, Tag("constant")]
    | Annotated[Exponential, Tag("exponential")]
    | Annotated[Stepwise, Tag("step")]
    | Annotated[Cosine, Tag("cosine")]
    | Annotated[Linear, Tag("linear")],
    kind_or("constant", "number"),
    # Without references, because the schema of a server update is a part of another one.
    WithJsonSchema(
        {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, *(each.model_json_schema() for each in _KINDS)]}
    ),
]
"""The type of an option: a number, or a mapping with ``kind``, ``value`` and the options of the kind."""


def rate_at(rate: LearningRate, time: float) -> float:
    """The rate at a time in rounds."""
    return rate.at(time) if isinstance(rate, Rate) else rate


def lasting(part: Part, rounds: int | None, field: str) -> Part:
    """The same part of a run of so many rounds; its options are at ``field`` and their names."""
    rates = {name: value for name, value in part if isinstance(value, _Ending) and rounds is not None}
    for name, rate in rates.items():
        rates[name] = validated(type(rate), {**dict(rate), "rounds": rate.rounds or rounds}, field=field + name)
        if not rate.end and (rate.rounds or math.inf) < (rounds or 0):
            raise UserError(f"the rate is 0 after {rate.rounds} of {rounds} rounds; set its end", field=field + name)
    return part.model_copy(update=rates) if rates else part
