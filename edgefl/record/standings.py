"""``standings.json``: the figures of a run at its pauses, from which a sweep chooses the settings to continue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from pydantic import RootModel

from edgefl.files import read_json, write_file
from edgefl.options import Options
from edgefl.validation import validated


class Standing(Options):
    """What a run had reached and spent at a pause; its fields are columns of a sweep's table."""

    seed: int
    stop: Literal["paused"] = "paused"
    rounds: int
    rounds_without_update: int
    refused: int
    seconds: float
    accuracy_final: float | None
    accuracy_best: float | None
    accuracy_ema: float | None
    metric_final: float | None
    metric_best: float | None
    metric_ema: float | None
    bytes_down: int
    bytes_up: int
    flops: float
    joules: float


class _Standings(RootModel[dict[str, Standing]]):
    pass


def read_standings(path: Path) -> dict[str, Standing]:
    """Return the figures by the pause's name, in the order of the pauses; none if the file does not exist.

    Raises:
        UserError: the file cannot be read, or holds figures that a run cannot have.
    """
    return validated(_Standings, read_json(path), file=str(path)).root if path.exists() else {}


def add_standing(name: str, standing: Standing, path: Path) -> None:
    """Write the figures of one more pause."""
    data = {each: row.model_dump(mode="json") for each, row in (read_standings(path) | {name: standing}).items()}
    write_file(path, json.dumps(data))
