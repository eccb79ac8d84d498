"""What a run has done so far, on disk after every round: its events, and every number that training gave the world.

One SQLite file per run, in write-ahead mode: a kill at any moment leaves the last whole round. On resumption the world
derives its rows again; the journal holds them to what was written before, and appends from there.
"""

from __future__ import annotations

import json
import sqlite3
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from edgefl.errors import EdgeflError
from edgefl.simulation.log import Event

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
    """A re-executed run does not come to the rows or numbers that its journal holds."""


class Journal:
    """The journal of one run; use as a context manager.

    Args:
        path: the SQLite file; made where there is none.
    """

    def __init__(self, path: Path) -> None:
        # One transaction a round, begun and committed by hand.
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
        """Rounds at which a checkpoint was taken, newest first, with the names of their manifests."""
        return list(self._file.execute("SELECT round, manifest FROM checkpoints ORDER BY round DESC"))

    def take(self, events: Sequence[Event]) -> None:
        """Rows that follow those taken before; held to what an earlier process wrote, as far as it got.

        Raises:
            LogDiffers: a row is not the one that was written.
        """
        known = min(self._known_events - self._position, len(events))
        for event in events[: max(known, 0)]:
            then = next(self._known)
            # What is no number equals nothing, but is written alike.
            if then != event and packed([then]) != packed([event]):
                was, now = json.dumps(then), json.dumps(event)
                raise LogDiffers(f"event {self._position} was {was}, and is now {now}: the run cannot be resumed")
            self._position += 1
        fresh = events[max(known, 0) :]
        if fresh:
            self._rows.append((self._position, *packed(fresh)))
            self._position += len(fresh)

    def recall(self, key: str) -> Any:
        """A number that training gave in an earlier process.

        Raises:
            LogDiffers: it was never given.
        """
        if key not in self._numbers:
            raise LogDiffers(f"the journal does not know '{key}', which the run now asks for: it cannot be resumed")
        return self._numbers[key]

    def note(self, key: str, value: Any) -> None:
        """A number that training gives now; non-finite ones are kept as such.

        Raises:
            LogDiffers: an earlier process was given another one.
        """
        if key not in self._numbers:
            self._numbers[key] = self._fresh[key] = value
            return
        then, now = json.dumps(self._numbers[key]), json.dumps(value)
        if then != now:
            raise LogDiffers(f"'{key}' was {then}, and is now {now}: the run cannot be resumed")

    def commit(self, round: int) -> None:
        """Everything taken and noted since the last commit belongs to rounds up to ``round``, and is safe from now on.

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
        """The checkpoint ``manifest`` of ``round``, which was committed before, is on disk.

        The journal is flushed, with everything committed before, so that older checkpoints can be removed.
        """
        self._file.execute("PRAGMA synchronous=FULL")
        self._file.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?)", (round, manifest))
        self._file.execute("PRAGMA synchronous=NORMAL")

    def forget(self, round: int) -> None:
        """The checkpoint of ``round`` is of no use."""
        self._file.execute("DELETE FROM checkpoints WHERE round = ?", (round,))

    def _known_rows(self) -> Iterator[Event]:
        """The rows that earlier processes wrote, in order; a table of theirs may be too large to hold."""
        position = 0
        while position < self._known_events:
            query = "SELECT figures, words FROM events WHERE position = ?"
            rows = unpacked(*self._file.execute(query, (position,)).fetchone())
            position += len(rows)
            yield from rows


def packed(events: Sequence[Event]) -> tuple[bytes, str]:
    """Rows as the journal holds them, column by column: figures as float64, words as JSON.

    Figures as text would take four times as long, which is a tenth of what a round costs beside its training.

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
