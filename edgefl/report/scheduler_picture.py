"""The picture of schedulers: the seconds of their rounds, and how evenly clients take part."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edgefl.report.figure_file import new_figure, write_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class SchedulerPoint(NamedTuple):
    """A scheduler: its name, the mean seconds and joules of its rounds, and Jain's index of participation."""

    name: str
    seconds: float
    joules: float
    jain: float


def scheduler_figure(points: Sequence[SchedulerPoint]) -> Figure:
    """Two panels: Jain's index against the mean seconds, and against the mean joules of a round."""
    figure = new_figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for number, point in enumerate(points):
        for axis, cost in ((left, point.seconds), (right, point.joules)):
            axis.scatter([cost], [point.jain], color=f"C{number % 10}", marker="os^Dv"[number // 10 % 5], zorder=3,
                         label=point.name)  # fmt: skip
    left.set_xlabel("seconds of a round")
    right.set_xlabel("joules of a round")
    left.set_ylabel("Jain's index of participation")
    for axis in (left, right):
        axis.set_xlim(left=0)
        axis.set_ylim(0, 1.05)
        axis.grid(alpha=0.3)
    handles, names = left.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside right center", fontsize="small")
    return figure


def write_schedulers(points: Sequence[SchedulerPoint], path: Path) -> None:
    """Draw :func:`scheduler_figure` into a file; the file extension sets the format.

    Raises:
        UserError: the file cannot be written.
    """
    write_figure(scheduler_figure(points), path)
