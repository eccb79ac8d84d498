"""Times, amounts and accuracies are in their ranges."""

from __future__ import annotations

import math
from collections.abc import Iterator

from edgefl.simulation.invariants.record import Record, at

_AMOUNTS = ("time", "bytes", "seconds", "flops", "joules")


def amounts(record: Record) -> Iterator[str]:
    """Times and amounts are finite and not negative."""
    for event in record.events:
        for name in _AMOUNTS:
            value = getattr(event, name)
            if not 0 <= value < math.inf:
                yield f"{at(event)}: {name} is {value:g}"


def accuracies(record: Record) -> Iterator[str]:
    """Accuracies are in [0, 1]."""
    for event in record.of("evaluation"):
        for name, value in {"value": event.value, **event.facts}.items():
            if name in ("value", "accuracy", "ema", "ensemble") and not (
                isinstance(value, int | float) and 0 <= value <= 1
            ):
                yield f"{at(event)}: {name} is {value}, which is not an accuracy"


LAWS = (amounts, accuracies)
