"""The command line: arguments, progress display and printing."""

from edgefl.cli.entry import main

__all__ = ["main"]
