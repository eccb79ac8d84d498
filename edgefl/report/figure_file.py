"""Figures as files; the same figure gives the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from edgefl.errors import UserError
from edgefl.files import writing_output
from edgefl.record.paths import output_path

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def new_figure(**options: Any) -> Figure:
    """A matplotlib figure with these options of its class, without pyplot and its windows; notebooks show it, too."""
    from matplotlib.figure import Figure

    class Picture(Figure):
        def _repr_png_(self) -> bytes:
            return drawn(self, "png")

    return Picture(**options)


def plain(axes: Axes, lines: Literal["both", "x", "y"] = "both", without: Sequence[str] = ("top", "right")) -> None:
    """Draw pale grid lines below everything else, and no frame on these sides."""
    axes.grid(axis=lines, color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[[*without]].set_visible(False)


def draw(figure: Figure, file: BinaryIO, form: str) -> None:
    """Draw a figure into an open file, in a format of matplotlib, such as ``png``; its fonts stay text."""
    import matplotlib

    undated = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    settings: Any = {"pdf.fonttype": 42, "ps.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "edgefl"}
    with matplotlib.rc_context(settings):
        figure.savefig(file, dpi=160, format=form, metadata=undated.get(form))


def drawn(figure: Figure, form: str) -> bytes:
    """Return the content of such a file."""
    file = BytesIO()
    draw(figure, file, form)
    return file.getvalue()


def figure_path(name: str | PathLike[str]) -> Path:
    """Return the path of a figure after checking it, so that a command need not compute what it cannot draw."""
    path = output_path(name)
    from matplotlib.backend_bases import FigureCanvasBase

    known, form = FigureCanvasBase.get_supported_filetypes(), _form(path)
    if form not in known:
        message = f"cannot be written: expected one of the formats {', '.join(sorted(known))}, found '{form}'"
        raise UserError(message, file=str(path))
    return path


def write_figure(figure: Figure, path: Path) -> None:
    """Draw a figure into a file that the user named; the file extension sets the format, PNG without one."""
    with writing_output(figure_path(path)) as file:
        draw(figure, file, _form(path))


def _form(path: Path) -> str:
    return path.suffix.removeprefix(".").lower() or "png"
