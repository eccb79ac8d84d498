"""Learning rates that change over the rounds, or with every local step; a plain number does not change."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Discriminator, Field, Tag, WithJsonSchema

from edgefl.options import Component

Part = TypeVar("Part", bound=BaseModel)


class Rate(Component):
    """η(t) = value · min(1, t'/warmup) · s(t - warmup), t in rounds from 0, t' the end of the round or step at t."""

    value: float = Field(gt=0, allow_inf_nan=False, description="the rate after the warm-up")
    warmup: float = Field(default=0.0, ge=0, description="rounds in which the rate grows to value")
    over: Literal["rounds", "steps"] = Field(
        default="rounds", description="one rate for each round, or one for each local step: step h of H is at t + h/H"
    )

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


def kind(value: Any) -> Any:
    """The tag of a value in the union; messages name this function."""
    if isinstance(value, dict):
        return value.get("kind", "constant")
    return getattr(value, "kind", "number")


_KINDS = Constant, Exponential, Stepwise, Cosine, Linear
LearningRate = Annotated[
    Annotated[float, Field(gt=0, allow_inf_nan=False), Tag("number")]
    | Annotated[Constant, Tag("constant")]
    | Annotated[Exponential, Tag("exponential")]
    | Annotated[Stepwise, Tag("step")]
    | Annotated[Cosine, Tag("cosine")]
    | Annotated[Linear, Tag("linear")],
    Discriminator(kind),
    # Without references, because the schema of a server update is a part of another one.
    WithJsonSchema(
        {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, *(each.model_json_schema() for each in _KINDS)]}
    ),
]
"""The type of an option: a number, or a mapping with ``kind``, ``value`` and the options of the kind."""


def rate_at(rate: LearningRate, time: float, step: float = 1.0) -> float:
    """The rate at a time in rounds."""
    return rate.at(time, step) if isinstance(rate, Rate) else rate


def ends_with_run(part: BaseModel) -> list[str]:
    """The names of the options that are rates whose end is that of the run."""
    return [name for name, value in part if isinstance(value, _Ending) and value.rounds is None]


def lasting(part: Part, rounds: int | None) -> Part:
    """The same part of a run of so many rounds."""
    ends = {name: getattr(part, name).model_copy(update={"rounds": rounds}) for name in ends_with_run(part)}
    return part.model_copy(update=ends) if ends else part
