"""``standings.json``: the figures of a run at its pauses, from which a sweep chooses the settings to continue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from pydantic import RootModel

from edgefl.durable_file import write_durably
from edgefl.json_file import read_json
from edgefl.options import Options
from edgefl.record.summary import Amount, Count, Share, Value
from edgefl.validation import validated


class Standing(Options):
    """What a run had reached and spent at a pause; its fields are columns of a sweep's table."""

    seed: Count
    stop: Literal["paused"] = "paused"
    rounds: Count
    rounds_without_update: Count
    refused: Count
    seconds: Amount
    accuracy_final: Share | None
    accuracy_best: Share | None
    accuracy_ema: Share | None
    metric_final: Value | None
    metric_best: Value | None
    metric_ema: Value | None
    bytes_down: Count
    bytes_up: Count
    flops: Amount
    joules: Amount


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
    write_durably(path, json.dumps(data))
