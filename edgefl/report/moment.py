"""The moment that every table shows: the end of the last round within all budgets."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from edgefl.record.summary import Accuracy, Blocks, Communication, SeedResult
from edgefl.report.curves import column, spent_by_round

if TYPE_CHECKING:
    import pyarrow as pa

MOST_IMAGES = 10**6


def at_the_moment(result: SeedResult, table: pa.Table, until: float = math.inf) -> SeedResult:
    """A seed's result with the figures of the last round within all budgets.

    Bytes by fate, broken transfers, results of clients and the ensemble stay those of the whole run.

    Args:
        result: the whole run, from ``summary.json``.
        table: its rounds, from ``rounds.parquet``.
        until: seconds at which a budget of bytes of each client was exhausted, which rounds do not show.
    """
    spent = spent_by_round(table)
    limits = [(kind, limit) for kind, limit in ((each.kind, each.limit) for each in result.budgets) if kind in spent]
    within = [spent["seconds"] < until, *(spent[kind] <= limit * (1 + 1e-9) for kind, limit in limits)]
    count = int(np.all(within, axis=0).sum())
    table = table.slice(0, count)

    def total(name: str) -> Any:
        return sum(table.column(name).to_pylist())

    known, averages, ratios = (
        values[np.isfinite(values)]
        for values in (column(table, name) for name in ("metric", "metric_ema", "ratio_to_optimum"))
    )
    metric = result.metric
    if count < result.rounds or result.stop.reason == "trained":  # else the last model, evaluated at the run's end
        metric = metric.model_copy(
            update={
                "final": float(known[-1]) if len(known) else None,
                "best": metric.metric.best(*known.tolist()) if len(known) else None,
                "ema": float(averages[-1]) if len(averages) else None,
            }
        )
    figures: dict[str, Any] = {"final": metric.final, "best": metric.best, "ema": metric.ema}
    seconds = float(spent["seconds"][count - 1]) if count else 0.0
    reached = [each.seconds is not None and each.seconds <= seconds * (1 + 1e-9) for each in result.targets]
    changes: dict[str, Any] = {
        "metric": metric,
        "accuracy": Accuracy(**(figures if metric.metric.is_accuracy else dict.fromkeys(figures))),
        "rounds": count,
        "rounds_without_update": sum(not number for number in table.column("aggregated").to_pylist()),
        "refused": total("refused"),
        "seconds": seconds,
        "flops": total("flops"),
        "joules": total("joules"),
        "bytes": result.bytes.model_copy(update={"down": total("bytes_down"), "up": total("bytes_up")}),
        "communication": Communication(
            exposed_seconds=total("exposed_seconds"), hidden_seconds=total("hidden_seconds")
        ),
        "targets": tuple(
            each if now else each.model_copy(update={"reached": False, "seconds": None})
            for each, now in zip(result.targets, reached, strict=True)
        ),
    }
    if result.blocks is not None:
        blocks: Blocks = result.blocks
        sums = {"actual": total("blocks_actual"), "uniform": total("blocks_uniform")}
        changes["blocks"] = blocks.model_copy(update=sums)
    if len(ratios):
        changes["ratio_to_optimum"] = float(ratios.mean())
    return result.model_copy(update=changes)


def images_of(values: list[float]) -> int | None:
    """The number of test images of which accuracies are shares: the least one that all of them fit.

    It divides the true number, so uncertainties computed from it are not too small; ``None`` for other metrics.

    >>> images_of([0.5, 579 / 600, 593 / 600]), images_of([0.123456789012])
    (600, None)
    """
    found = 1
    for value in set(values):
        share = Fraction(value).limit_denominator(MOST_IMAGES)
        if not math.isclose(float(share), value, rel_tol=1e-15):
            return None
        found = math.lcm(found, share.denominator)
    return found if values and found <= MOST_IMAGES else None


def scatter(values: list[float], images: int | None) -> float:
    """The standard deviation of one model's metric that seeds need not show.

    For an accuracy that of a share of ``images``; for another metric that of its last changes between evaluations.

    >>> round(scatter([0.9, 0.9], 100), 3), scatter([1.0, 3.0, 1.0], None)
    (0.03, 1.414...)
    """
    if images is not None and values:
        return math.sqrt(values[-1] * (1 - values[-1]) / images)
    changes = np.diff(values[-6:])
    return float(np.sqrt(np.mean(changes**2) / 2)) if len(changes) else 0.0
