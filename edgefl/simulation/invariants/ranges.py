"""Times, amounts and metrics are in their ranges."""

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


def metrics(record: Record) -> Iterator[str]:
    """Values of the metric are not negative; accuracies and other shares are at most 1."""
    metric = record.summary.metric
    highest = 1.0 if metric.share else math.inf
    for event in record.of("evaluation"):
        for name, value in {"value": event.value, **event.facts}.items():
            if name in ("value", "metric", "ema", "ensemble") and not (
                isinstance(value, int | float) and 0 <= value <= highest
            ):
                yield f"{at(event)}: {name} is {value}, which is no value of {metric.name}"


LAWS = (amounts, metrics)
