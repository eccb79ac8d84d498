"""A finished run with its figure and table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgefl.report.glance import glance
from edgefl.report.html import render
from edgefl.report.run_record import RunRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class RunResult(RunRecord):
    """A finished run: its data, a figure, and a comparison of its methods, which notebooks show.

    Args:
        path: a run directory that ``edgefl simulate`` has finished.

    Raises:
        UserError: the folder is not a finished run, or its summary has a schema that this version does not support.
    """

    def plot(self) -> Figure:
        """Accuracy over virtual time and over bytes, as a matplotlib figure."""
        from edgefl.report.pictures import accuracy_figure

        return accuracy_figure(self)

    def _repr_html_(self) -> str:
        return render("comparison.html.jinja", table=glance(self))
