"""The figures of a run's summary that reports show, one list for all formats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from edgefl.record.summary import SeedResult


class Figure(NamedTuple):
    """One figure.

    Attributes:
        path: its place in a :class:`SeedResult`, which is also its place in JSON.
        dimension: a dimension of :mod:`edgefl.report.quantities`, or :data:`METRIC`.
        head: its heading in tables, in two parts; ``None`` if it is not a column, but a note.
        column: its name in CSV if it is not the path's.
        rare: whether tables omit it if it is 0 everywhere.
    """

    path: str
    dimension: str
    head: tuple[str, str] | None = None
    column: str = ""
    rare: bool = False

    @property
    def name(self) -> str:
        """Its name in CSV."""
        return self.column or self.path.replace(".", "_")

    @property
    def part(self) -> str:
        """The part of the summary that contains it, such as ``bytes``; figures of one part have the same unit."""
        return self.path.partition(".")[0]

    def of(self, result: SeedResult) -> float | None:
        """Its value for one seed; ``None`` if the summary has none, or if it describes an untrained model."""
        found: Any = None if self in OUTCOME and result.trained_nothing else result
        for name in self.path.split("."):
            found = None if found is None else getattr(found, name)
        value: float | None = found
        return value


METRIC = "metric"
"""The dimension of figures that are values of the run's metric, in whatever it is shown."""

OUTCOME = (
    Figure("accuracy.final", "fraction", ("accuracy", "final")),
    Figure("accuracy.best", "fraction", ("accuracy", "best")),
    Figure("metric.final", METRIC, ("metric", "final")),
    Figure("metric.best", METRIC, ("metric", "best")),
    Figure("clients.mean", METRIC, ("clients", "mean")),
    Figure("clients.worst_tenth", METRIC, ("clients", "worst tenth")),
    Figure("clients.cumulative", METRIC, ("clients", "all samples")),
    Figure("personalisation.mean", METRIC, ("personalised", "mean")),
    Figure("personalisation.worst_tenth", METRIC, ("personalised", "worst tenth")),
    Figure("personalisation.cumulative", METRIC, ("personalised", "all samples")),
    Figure("ensemble.final", METRIC, ("ensemble", "final")),
)
COST = (
    Figure("seconds", "seconds", ("time", "")),
    Figure("rounds", "count", ("rounds", "")),
    Figure("rounds_without_update", "count"),
    Figure("refused", "count"),
    Figure("transfers.breaks", "count"),
    Figure("transfers.retries", "count", ("retries", ""), rare=True),
    Figure("transfers.failed", "count"),
    Figure("bytes.down", "bytes", ("down", "")),
    Figure("bytes.up", "bytes", ("up", "")),
    Figure("bytes.wasted", "bytes", ("wasted", "")),
    Figure("joules", "joules", ("energy", "")),
    Figure("ratio_to_optimum", "number"),
    Figure("communication.exposed_seconds", "seconds", ("exposed", ""), "exposed_seconds"),
    Figure("communication.hidden_seconds", "seconds", ("hidden", ""), "hidden_seconds"),
    Figure("blocks.actual", "bytes", column="bytes_down_actual_blocks"),
    Figure("blocks.uniform", "bytes", column="bytes_down_uniform_blocks"),
    Figure("blocks.front_age", "rounds", column="front_block_age"),
)
FIGURES = OUTCOME + COST
"""All figures; the times to targets are between those of the outcome and those of the cost."""


def nested(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Figures by path as an object in an object.

    >>> nested({"seconds": 1.0, "bytes.up": 2, "bytes.down": 3})
    {'seconds': 1.0, 'bytes': {'up': 2, 'down': 3}}
    """
    found: dict[str, Any] = {}
    for path, value in figures.items():
        *above, name = path.split(".")
        inner = found.setdefault(above[0], {}) if above else found
        inner[name] = value
    return found
