"""What can be done with a run directory that is not finished."""

from __future__ import annotations

import json
from pathlib import Path

from edgefl.record.paths import RunPaths


def is_emulated(run: Path) -> bool:
    """Whether the run in a folder, unfinished or with faults, is an emulation; ``False`` if this is unknown."""
    paths = RunPaths(run)
    for file in (paths.state, paths.faulted):
        try:
            state = json.loads(file.read_text(encoding="utf-8"))
            return state["choices"]["emulated"] is True
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return False


def how_to_continue(run: str | Path) -> str:
    """What a message says of an unfinished run, after "it is unfinished" or "contains an interrupted run"."""
    return f"edgefl {'emulate' if is_emulated(Path(run)) else 'simulate'} --resume {run}"
