"""Figures as files; the same figure gives the same bytes."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from edgefl.errors import UserError
from edgefl.record.outputs import output_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(**options: Any) -> Figure:
    """Return a matplotlib figure with these options of its class.

    It is made without pyplot, so no window system is needed, and without ``MPLBACKEND``, which Jupyter sets to a module
    that may be missing in another Python installation.
    """
    if "matplotlib" not in sys.modules:
        _import_without_backend()
    from matplotlib.figure import Figure

    return Figure(**options)


def _import_without_backend() -> None:
    """Import matplotlib without ``MPLBACKEND``, which it reads on import; pyplot uses it later if possible."""
    chosen = os.environ.pop("MPLBACKEND", None)
    try:
        import matplotlib as mpl
    finally:
        if chosen is not None:
            os.environ["MPLBACKEND"] = chosen
    if chosen:
        with suppress(ValueError):
            mpl.rcParams["backend"] = chosen


def draw(figure: Figure, file: BinaryIO, form: str) -> None:
    """Draw a figure into an open file.

    Args:
        figure: the figure.
        file: receives the bytes.
        form: a format of matplotlib, such as ``png``.

    Raises:
        ValueError: matplotlib has no such format.
    """
    figure.savefig(file, dpi=160, format=form, metadata={"Software": None} if form == "png" else None)


def write_figure(figure: Figure, path: Path) -> None:
    """Draw a figure into a file that the user named; the file extension sets the format, PNG without one.

    Raises:
        UserError: there is no such format, or the file cannot be written.
    """
    with output_file(path) as file:
        try:
            draw(figure, file, path.suffix.removeprefix(".").lower() or "png")
        except ValueError as error:
            raise UserError(f"cannot be written: {error}", file=str(path)) from None
