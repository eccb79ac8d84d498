"""Pause a run: its figures are on disk, and the run can be resumed with the same outcome."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgefl.errors import EdgeflError
from edgefl.files import read_json, write_file
from edgefl.record import SeedPaths
from edgefl.record.events import Listener
from edgefl.record.figures import figures, flat, metric_values, totals_of
from edgefl.record.metric import Metric
from edgefl.record.rounds import RoundRow, columns_of


@dataclass(frozen=True)
class Pause:
    """When to pause a run: at the end of the first round that reaches ``rounds`` or ``seconds`` of virtual time.

    >>> Pause(rounds=10).reached(9, 1e9), Pause(seconds=60.0).reached(3, 61.5), Pause(rounds=10).name
    (False, True, '10 rounds')
    """

    rounds: int | None = None
    seconds: float | None = None

    def reached(self, round: int, seconds: float) -> bool:
        in_rounds = self.rounds is not None and round >= self.rounds
        return in_rounds or (self.seconds is not None and seconds >= self.seconds)

    @property
    def name(self) -> str:
        """The key under which the run's figures at this pause are stored."""
        return f"{self.rounds} rounds" if self.rounds is not None else f"{self.seconds:g} s"


class Paused(EdgeflError):  # noqa: N818  (not an error)
    """A run was paused as requested; ``round`` is the number of completed rounds."""

    def __init__(self, label: str, round: int) -> None:
        super().__init__(label, round)
        self.label = label
        self.round = round

    def __str__(self) -> str:
        return f"{self.label} paused after round {self.round}"


def read_pauses(path: Path) -> dict[str, dict[str, Any]]:
    """Return what a run had reached and spent at its pauses, by the pause's name, in order; empty without the file.

    The figures are columns of a sweep's table, which chooses from them the settings to continue.
    """
    found: dict[str, dict[str, Any]] = read_json(path) if path.exists() else {}
    return found


def add_pause(name: str, figures: Mapping[str, Any], path: Path) -> None:
    """Write the figures of one more pause."""
    write_file(path, json.dumps(read_pauses(path) | {name: figures}))


@dataclass
class Pausing(Listener):
    """Pauses one run, unless the pause is not before its last round."""

    pause: Pause
    label: str
    seed: int
    last: int
    paths: SeedPaths
    metric: Metric
    _rows: list[RoundRow] = field(default_factory=list)

    def round_ended(self, row: RoundRow) -> None:
        self._rows.append(row)
        if row.round < self.last and self.pause.reached(row.round, row.seconds):
            add_pause(self.pause.name, self._figures(), self.paths.pauses)
            raise Paused(self.label, row.round)

    def _figures(self) -> dict[str, Any]:
        rounds = columns_of(self._rows)
        values = metric_values(rounds, self.metric)
        is_accuracy = self.metric.is_accuracy
        return {
            "seed": self.seed,
            "stop": "paused",
            **{f"accuracy_{name}": value if is_accuracy else None for name, value in values.items()},
            **{f"metric_{name}": value for name, value in values.items()},
            **flat(figures(totals_of(rounds))),
        }
