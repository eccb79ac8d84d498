"""Where tables are printed: as wide as the terminal, and never cut when they go into a file or a pipe."""

from __future__ import annotations

from rich.console import Console

WIDTH_OF_A_FILE = 200


def standard_output() -> Console:
    """A rich console on standard output."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=WIDTH_OF_A_FILE)


def standard_error() -> Console:
    """A rich console on standard error, where progress goes."""
    console = Console(stderr=True, highlight=False)
    return console if console.is_terminal else Console(stderr=True, highlight=False, width=WIDTH_OF_A_FILE)
