"""Consoles for tables: as wide as the terminal; in a file or pipe ``COLUMNS`` columns, or 200."""

from __future__ import annotations

import os

from rich.console import Console

WIDTH_OF_A_FILE = 200


def width_of_a_file() -> int:
    """Columns of a table in a file or a pipe: ``COLUMNS``, parsed as the standard library does, or 200."""
    try:
        columns = int(os.environ.get("COLUMNS", ""))
    except ValueError:
        return WIDTH_OF_A_FILE
    return columns if columns > 0 else WIDTH_OF_A_FILE


def standard_output() -> Console:
    """A rich console on standard output."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=width_of_a_file())


def standard_error() -> Console:
    """A rich console on standard error, for progress."""
    console = Console(stderr=True, highlight=False)
    return console if console.is_terminal else Console(stderr=True, highlight=False, width=width_of_a_file())
