r"""Consoles for tables: as wide as the terminal; in a file or pipe ``COLUMNS`` columns, or 200.

Control characters in texts are shown as escapes (``\x1b``); the console's own colours are not texts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from edgefl.printable import printable

WIDTH_OF_A_FILE = 200


def width_of_a_file() -> int:
    """Columns of a table in a file or a pipe: ``COLUMNS``, parsed as the standard library does, or 200."""
    try:
        columns = int(os.environ.get("COLUMNS", ""))
    except ValueError:
        return WIDTH_OF_A_FILE
    return columns if columns > 0 else WIDTH_OF_A_FILE


class _SafeConsole(Console):
    """Shows control characters in what it prints, wherever a text comes from."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of a renderable; those with a control code are the console's own."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def standard_output() -> Console:
    """A rich console on standard output."""
    console = _SafeConsole(highlight=False)
    return console if console.is_terminal else _SafeConsole(highlight=False, width=width_of_a_file())


def into_file(file: TextIO) -> Console:
    """A rich console that writes into a text file, without terminal control codes."""
    return _SafeConsole(file=file, highlight=False, width=width_of_a_file(), force_terminal=False, color_system=None)


def standard_error() -> Console:
    """A rich console on standard error, for progress."""
    # The stream as it is now: a part of a method may replace ``sys.stderr``.
    console = _SafeConsole(file=sys.stderr, highlight=False)
    return console if console.is_terminal else _SafeConsole(file=sys.stderr, highlight=False, width=width_of_a_file())
