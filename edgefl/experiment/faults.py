"""The errors of an experiment that are not mistakes in its scenario."""

from collections.abc import Mapping
from pathlib import Path

from edgefl.errors import EdgeflError
from edgefl.record.paths import how_to_continue, is_interrupted
from edgefl.wording import without_method


class RunsFailed(EdgeflError):  # noqa: N818  (what it says of the runs)
    """Some runs ended by a fault of a part of their method; all other runs are finished and written.

    ``faults`` has the message of each, by label and seed; if ``resumable``, they can be tried again in the directory.
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
    """
    groups: dict[str, list[tuple[str, int]]] = {}
    for (label, seed), message in faults.items():
        groups.setdefault(without_method(message, label), []).append((label, seed))
    return [
        f"{'; '.join(f'{label}, seed {seed}' for label, seed in runs)}: {cause if len(runs) > 1 else faults[runs[0]]}"
        for cause, runs in groups.items()
    ]


class NotWritten(EdgeflError):  # noqa: N818  (what it says of the run)
    """The run directory could no longer be written, for example because the disk is full."""

    def __init__(self, path: Path, error: OSError) -> None:
        self.path = path
        hint = f"; finished work is kept; to continue: {how_to_continue(path)}" if is_interrupted(path) else ""
        super().__init__(f"{path} cannot be written: {error.strerror or error}{hint}")
