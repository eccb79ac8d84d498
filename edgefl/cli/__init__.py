"""The command line: arguments, progress and printing, nothing else."""

from edgefl.cli.entry import main

__all__ = ["main"]
