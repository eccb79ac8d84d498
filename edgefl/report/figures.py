"""The figures of a run's summary that reports show, one list for all formats."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from edgefl.record.summary import SeedResult


class Figure(NamedTuple):
    """One figure."""

    path: str  # its place in a SeedResult, which is also its place in JSON
    dimension: str  # a dimension of quantities, or METRIC
    head: str  # its heading in --details
    column: str = ""  # its name in CSV if it is not the path's
    whole: bool = False  # whether it is a figure of the whole run, not of the moment that tables show

    @property
    def name(self) -> str:
        """Its name in CSV."""
        return self.column or self.path.replace(".", "_")

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
    Figure("accuracy.final", "fraction", "accuracy"),
    Figure("accuracy.best", "fraction", "best accuracy"),
    Figure("metric.final", METRIC, "metric"),
    Figure("metric.best", METRIC, "best metric"),
    Figure("clients.mean", METRIC, "mean of clients", whole=True),
    Figure("clients.worst_tenth", METRIC, "worst tenth of clients", whole=True),
    Figure("clients.cumulative", METRIC, "all clients' samples", whole=True),
    Figure("personalisation.mean", METRIC, "personalised, mean", whole=True),
    Figure("personalisation.worst_tenth", METRIC, "personalised, worst tenth", whole=True),
    Figure("personalisation.cumulative", METRIC, "personalised, all samples", whole=True),
    Figure("ensemble.final", METRIC, "ensemble", whole=True),
)
COST = (
    Figure("seconds", "seconds", "time"),
    Figure("rounds", "count", "rounds"),
    Figure("rounds_without_update", "count", "rounds without update"),
    Figure("refused", "count", "refused jobs"),
    Figure("transfers.breaks", "count", "broken attempts", whole=True),
    Figure("transfers.retries", "count", "retries", whole=True),
    Figure("transfers.failed", "count", "failed transfers", whole=True),
    Figure("bytes.down", "bytes", "down"),
    Figure("bytes.up", "bytes", "up"),
    Figure("bytes.wasted", "bytes", "wasted", whole=True),
    Figure("joules", "joules", "energy"),
    Figure("ratio_to_optimum", "number", "× shortest round"),
    Figure("communication.exposed_seconds", "seconds", "exposed transfers", "exposed_seconds"),
    Figure("communication.hidden_seconds", "seconds", "hidden transfers", "hidden_seconds"),
    Figure("blocks.actual", "bytes", "blocks, actual bytes", "bytes_down_actual_blocks"),
    Figure("blocks.uniform", "bytes", "blocks at 1/M", "bytes_down_uniform_blocks"),
    Figure("blocks.front_age", "rounds", "age of stale blocks", "front_block_age", whole=True),
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
