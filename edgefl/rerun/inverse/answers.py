"""The answers, as plain values that can be written as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgefl.rerun.inverse.condition import Condition, Kind
from edgefl.rerun.inverse.questions import Name


@dataclass(frozen=True)
class Answer:
    """The answer to one question for one method.

    Attributes:
        met: the factor closest to the boundary with which every seed meets the condition; ``None`` if some seed does
            not even meet it at the easiest factor.
        missed: the factor closest to the boundary with which a seed does not meet it; ``None`` if all meet it even at
            the hardest factor.
        why: what fails at ``missed``: the exceeded limit; ``memory`` if devices have too little; ``training`` if
            something else would be trained; or empty.
        different: the devices with too little memory, or what would be trained differently; or empty.
        device: the slowest device of the fleet, for the question about devices.
        figures: absolute values at ``met``: ``down`` and ``up``, the median client's bit/s; ``step_seconds`` on the
            slowest device; ``joules`` of the smallest battery; ``bytes`` and ``flops``, of the model and of one step.
    """

    met: float | None
    missed: float | None
    why: str
    different: str
    device: str
    figures: Mapping[str, float]


@dataclass(frozen=True)
class MethodAnswer:
    """The answers for one method.

    Attributes:
        label: the method's label.
        spent: what the run itself spent until the value was reached, the most of any seed; ``None`` if a seed did not
            reach it, or if it cannot be replayed.
        answers: by question; those that are missing need training.
        why_not: why answers are missing, in words; empty if none is.
    """

    label: str
    spent: Mapping[Kind, float] | None
    answers: Mapping[Name, Answer]
    why_not: str = ""


@dataclass(frozen=True)
class Answers:
    """The answers for a run."""

    condition: Condition
    seeds: tuple[int, ...]
    methods: tuple[MethodAnswer, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, in base units."""
        condition = self.condition
        name = f"{condition.metric.name}_ema" if condition.smoothed else condition.metric.name
        return {
            "metric": name,
            "value": condition.value,
            "limits": dict(condition.limits),
            "seeds": list(self.seeds),
            "methods": [
                {
                    "label": each.label,
                    "spent": None if each.spent is None else dict(each.spent),
                    "needs_training": each.why_not or None,
                    "answers": {name: _plain(answer) for name, answer in each.answers.items()},
                }
                for each in self.methods
            ],
        }


def _plain(answer: Answer) -> dict[str, Any]:
    plain = {"met": answer.met, "missed": answer.missed, "why": answer.why, "different": answer.different}
    return {**plain, **({"device": answer.device} if answer.device else {}), **answer.figures}
