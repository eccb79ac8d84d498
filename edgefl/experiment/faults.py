"""The errors of an experiment that are not mistakes in its scenario."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path

from edgefl.errors import EdgeflError
from edgefl.record.paths import how_to_continue
from edgefl.wording import without_method


class RunsFailed(EdgeflError):  # noqa: N818  (what it says of the runs)
    """Some runs ended by a fault of a part of their method; all other runs are finished and written.

    Args:
        path: the run directory, which is complete.
        runs: the number of its runs.
        faults: the message of each run that failed, by label and seed.
        resumable: whether the runs that failed can be tried again in the same directory.

    Attributes:
        messages: one for each run that failed.
    """

    def __init__(self, path: Path, runs: int, faults: Mapping[tuple[str, int], str], *, resumable: bool = True) -> None:
        self.path = path
        self.messages = [f"{label}, seed {seed}: {message}" for (label, seed), message in faults.items()]
        kept = "" if len(faults) == runs else f"; the others are complete in {path}"
        again = f"; once the code is fixed, {how_to_continue(path)} tries again"
        hint = f"{again}; a changed scenario needs a new run" if resumable else ""
        super().__init__(f"{len(faults)} of {runs} runs ended by a fault: {'; '.join(_shared(faults))}{kept}{hint}")


def _shared(faults: Mapping[tuple[str, int], str]) -> list[str]:
    """The messages of runs, each once.

    >>> _shared({("a", 0): "method 'a', round 1: no", ("b", 0): "method 'b', round 1: no"})
    ['a, seed 0; b, seed 0: round 1: no']
    >>> _shared({("a", 0): "method 'a', round 1: no"})
    ["a, seed 0: method 'a', round 1: no"]
    """
    groups: dict[str, list[tuple[str, int]]] = {}
    for (label, seed), message in faults.items():
        groups.setdefault(without_method(message, label), []).append((label, seed))
    return [
        f"{'; '.join(f'{label}, seed {seed}' for label, seed in runs)}: {cause if len(runs) > 1 else faults[runs[0]]}"
        for cause, runs in groups.items()
    ]


class NotWritten(EdgeflError):  # noqa: N818  (what it says of the run)
    """The run directory could no longer be written, for example because the disk is full.

    Args:
        path: the run directory.
        reason: the reason from the operating system or the database.
        resumable: whether the run can be resumed.
    """

    def __init__(self, path: Path, reason: str, *, resumable: bool) -> None:
        self.path = path
        hint = f"; finished work is kept; to continue: {how_to_continue(path)}" if resumable else ""
        super().__init__(f"{path} cannot be written: {reason}{hint}")


class RunMoved(EdgeflError):  # noqa: N818  (what happened to the run)
    """The run directory was moved or removed during a run, so the run stopped.

    Args:
        path: its former path.
        new: its present path; ``None`` if unknown.
        at: the progress of the runs, in words.
    """

    def __init__(self, path: Path, new: Path | None, at: str) -> None:
        self.path = path
        self.new = new
        resume = "edgefl simulate --resume"
        if new is None:
            what, hint = "was moved or removed", f"if it was moved, use its new path: {resume} DIR"
        else:
            what, hint = f"was moved to {new}", f"to continue: {resume} {new}"
        super().__init__(f"{path} {what} during a run, which stopped {at}; {hint}")


def storage_reason(error: OSError | sqlite3.Error) -> str:
    """Why something could not be written, in words.

    >>> import errno
    >>> storage_reason(OSError(errno.ENOSPC, "No space left on device"))
    'No space left on device'
    """
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
