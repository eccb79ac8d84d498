"""What can be done with a run directory that is not finished."""

from __future__ import annotations

import json
from pathlib import Path

from edgefl.record.paths import RunPaths


def is_emulated(run: Path) -> bool:
    """Whether the unfinished run in a folder is an emulation, which cannot be resumed; ``False`` if this is unknown."""
    try:
        state = json.loads(RunPaths(run).state.read_text(encoding="utf-8"))
        return state["choices"]["emulated"] is True
    except (OSError, ValueError, KeyError, TypeError):
        return False


def how_to_continue(run: str | Path) -> str:
    """What a message says of an unfinished run, after "it is unfinished" or "contains an interrupted run"."""
    if is_emulated(Path(run)):
        return "an emulation cannot be resumed; begin a new one in another folder"
    return f"edgefl simulate --resume {run}"
