"""What can be done with a run directory that is not finished."""

from __future__ import annotations

from pathlib import Path

from edgefl.errors import UserError
from edgefl.json_file import read_json
from edgefl.record.paths import RunPaths


def is_emulated(run: Path) -> bool:
    """Whether the run in a folder, unfinished or with faults, is an emulation; ``False`` if this is unknown."""
    paths = RunPaths(run)
    for file in (paths.state, paths.faulted):
        try:
            return read_json(file)["choices"]["emulated"] is True
        except (UserError, LookupError, TypeError):
            continue
    return False


def how_to_continue(run: str | Path) -> str:
    """What a message says of an unfinished run, after "it is unfinished" or "contains an interrupted run"."""
    return f"edgefl {'emulate' if is_emulated(Path(run)) else 'simulate'} --resume {run}"
