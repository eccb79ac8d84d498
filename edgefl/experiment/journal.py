"""The journal of a run, written after every round: its events, and every number from training.

One SQLite file per run, in write-ahead mode: a kill at any moment leaves the last whole round. On resumption the world
derives its rows again; the journal compares them with the rows written before, and appends the new ones.
"""

from __future__ import annotations

import json
import sqlite3
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from edgefl.errors import EdgeflError
from edgefl.record.events import Event

_TABLES = """
CREATE TABLE IF NOT EXISTS events (position INTEGER PRIMARY KEY, figures BLOB NOT NULL, words TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS numbers (round INTEGER PRIMARY KEY, noted TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS rounds (round INTEGER PRIMARY KEY, events INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS checkpoints (round INTEGER PRIMARY KEY, manifest TEXT NOT NULL);
"""

_WORDS = [Event._fields.index(name) for name in ("kind", "item", "source", "target", "detail")]
_FIGURES = [place for place in range(len(Event._fields)) if place not in _WORDS]
_WHOLE = [Event._fields.index(name) for name in ("round", "client", "flow")]


class LogDiffers(EdgeflError):  # noqa: N818  (what it says of the log)
    """A re-executed run differs from the rows or numbers in its journal."""


class Journal:
    """The journal of one run; use as a context manager.

    Args:
        path: the SQLite file; created if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        # One explicit transaction for each round.
        self._file = sqlite3.connect(path, isolation_level=None)
        self._file.execute("PRAGMA journal_mode=WAL")
        self._file.execute("PRAGMA synchronous=NORMAL")
        self._file.executescript(_TABLES)
        self._known_events = int(self._file.execute("SELECT COALESCE(MAX(events), 0) FROM rounds").fetchone()[0])
        self._known = self._known_rows()
        self._numbers: dict[str, Any] = {}
        for (noted,) in self._file.execute("SELECT noted FROM numbers"):
            self._numbers |= json.loads(noted)
        self._position = 0
        self._rows: list[tuple[int, bytes, str]] = []
        self._fresh: dict[str, Any] = {}

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def checkpoints(self) -> list[tuple[int, str]]:
        """Rounds that have a checkpoint, newest first, with the names of their manifests."""
        return list(self._file.execute("SELECT round, manifest FROM checkpoints ORDER BY round DESC"))

    def take(self, events: Sequence[Event]) -> None:
        """Add the next rows; those that an earlier process also wrote are compared with its rows.

        Raises:
            LogDiffers: a row differs from the written one.
        """
        known = min(self._known_events - self._position, len(events))
        for event in events[: max(known, 0)]:
            then = next(self._known)
            # NaN is not equal to itself, but is written in the same way.
            if then != event and packed([then]) != packed([event]):
                was, now = json.dumps(then), json.dumps(event)
                raise LogDiffers(f"event {self._position} was {was}, and is now {now}: the run cannot be resumed")
            self._position += 1
        fresh = events[max(known, 0) :]
        if fresh:
            self._rows.append((self._position, *packed(fresh)))
            self._position += len(fresh)

    def recall(self, key: str) -> Any:
        """A number from the training of an earlier process.

        Raises:
            LogDiffers: the journal does not contain it.
        """
        if key not in self._numbers:
            raise LogDiffers(f"the journal has no '{key}', which the run now requires: it cannot be resumed")
        return self._numbers[key]

    def note(self, key: str, value: Any) -> None:
        """Store a number from training; non-finite numbers are stored as such.

        Raises:
            LogDiffers: an earlier process stored a different one.
        """
        if key not in self._numbers:
            self._numbers[key] = self._fresh[key] = value
            return
        then, now = json.dumps(self._numbers[key]), json.dumps(value)
        if then != now:
            raise LogDiffers(f"'{key}' was {then}, and is now {now}: the run cannot be resumed")

    def commit(self, round: int) -> None:
        """Commit everything added since the last commit; it belongs to rounds up to ``round``.

        Args:
            round: rounds that have ended.
        """
        with self._file:
            self._file.execute("BEGIN")
            self._file.executemany("INSERT INTO events VALUES (?, ?, ?)", self._rows)
            if self._fresh:
                self._file.execute("INSERT INTO numbers VALUES (?, ?)", (round, json.dumps(self._fresh)))
            self._file.execute("INSERT OR REPLACE INTO rounds VALUES (?, ?)", (round, self._position))
        self._rows, self._fresh = [], {}

    def checkpoint(self, round: int, manifest: str) -> None:
        """Record that the checkpoint ``manifest`` of ``round`` is on disk; the round was committed before.

        This flushes the journal and all earlier commits, so that older checkpoints can be removed.
        """
        self._file.execute("PRAGMA synchronous=FULL")
        self._file.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?)", (round, manifest))
        self._file.execute("PRAGMA synchronous=NORMAL")

    def forget(self, round: int) -> None:
        """Remove the record of the unusable checkpoint of ``round``."""
        self._file.execute("DELETE FROM checkpoints WHERE round = ?", (round,))

    def _known_rows(self) -> Iterator[Event]:
        """The rows of earlier processes, in order; the whole table may be too large for memory."""
        position = 0
        while position < self._known_events:
            query = "SELECT figures, words FROM events WHERE position = ?"
            rows = unpacked(*self._file.execute(query, (position,)).fetchone())
            position += len(rows)
            yield from rows


def packed(events: Sequence[Event]) -> tuple[bytes, str]:
    """Rows in the journal's format, column by column: figures as float64, words as JSON.

    Figures as text would take four times as long, which is a tenth of a round's cost without its training.

    >>> rows = [Event(0.5, "idle", round=3, client=7, seconds=0.25), Event(1.0, "stop", item="rounds")]
    >>> unpacked(*packed(rows)) == rows
    True
    """
    columns = list(zip(*events, strict=True))
    figures = array("d")
    for place in _FIGURES:
        figures.extend(columns[place])
    return figures.tobytes(), json.dumps([columns[place] for place in _WORDS])


def unpacked(figures: bytes, words: str) -> list[Event]:
    """The rows of :func:`packed`."""
    columns: dict[int, Sequence[Any]] = dict(zip(_WORDS, json.loads(words), strict=True))
    numbers = array("d", figures)
    rows = len(numbers) // len(_FIGURES)
    for number, place in enumerate(_FIGURES):
        column = numbers[number * rows : (number + 1) * rows]
        columns[place] = [int(each) for each in column] if place in _WHOLE else column
    return [Event(*row) for row in zip(*(columns[place] for place in range(len(columns))), strict=True)]
