"""Tables, pictures and sentences about a finished run, made from its run directory only."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgefl.report.comparison import comparison
from edgefl.report.figure_file import drawn
from edgefl.report.glance import glance, verdict
from edgefl.report.pictures import accuracy_figure, write_pictures
from edgefl.report.rows import comparison_rows, none_completed_a_round
from edgefl.report.run_result import RunResult as FinishedRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "RunResult",
    "RunResults",
    "comparison",
    "comparison_rows",
    "none_completed_a_round",
    "verdict",
    "write_pictures",
]


class RunResult(FinishedRun):
    """A finished run: its summary, scenario and rounds, a figure, and a comparison of its methods for notebooks.

    Its other attributes are those of :class:`~edgefl.report.run_result.RunResult`.

    Args:
        path: a run directory that ``edgefl simulate`` has finished.
    """

    def plot(self, *over: str, methods: Sequence[str] = ()) -> Figure:
        """Accuracy, or another metric of the task, as a matplotlib figure.

        Args:
            over: the x-axis of each panel: ``time``, ``traffic``, ``energy``, ``computation``, ``rounds`` or the name
                of a quantity of the scenario's; time and traffic if none is given.
            methods: the labels of the methods shown; all if empty.
        """
        return accuracy_figure([self], over or ("time", "traffic"), methods)

    def _repr_html_(self) -> str:
        picture = b64encode(self._repr_png_() or b"").decode()
        return glance(self).notebook(picture)

    def _repr_png_(self) -> bytes | None:
        """The picture, where a notebook is shown without HTML; ``None`` if nothing was trained."""
        return drawn(self.plot(), "png") if self.trained else None


class RunResults(tuple[FinishedRun, ...]):
    """Several runs, such as those of a sweep; a notebook shows their comparison."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return comparison(*self).notebook()
