"""The picture of predicted over measured seconds of two runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgefl.durable_file import durable_file
from edgefl.report.against.comparing import Against
from edgefl.report.against.gaps import Gap
from edgefl.report.figure_file import draw
from edgefl.report.predicted import predicted_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARKERS = {"round": "o", "download": "v", "compute": "s", "upload": "^"}
_LEGEND = "circles: rounds; squares: training; triangles down and up: downloads and uploads"


def against_figure(found: Against) -> Figure | None:
    """Each round and each phase of a job as a point, a colour for each method; ``None`` if nothing is compared."""
    pairs = {method: [*found.pairs(method, "rounds"), *_phases(found, method)] for method in found.seeds}
    points = [
        (method, pair.what, pair.measured, pair.predicted)
        for method, each in pairs.items()
        for pair in each
        if pair.measured > 0 and pair.predicted > 0
    ]
    if not points:
        return None
    return predicted_figure(found.measured.name, points, of="a round or phase", markers=_MARKERS, legend=_LEGEND)


def _phases(found: Against, method: str) -> list[Gap]:
    return [pair for phase in _MARKERS if phase != "round" for pair in found.pairs(method, phase)]


def write_against(found: Against) -> Path | None:
    """Write ``against.png`` into the directory of the measured run, and return its path; ``None`` without a point.

    Raises:
        OSError: the file cannot be written.
    """
    figure = against_figure(found)
    if figure is None:
        return None
    path = found.measured.paths.against
    with durable_file(path) as file:
        draw(figure, file, "png")
    return path
