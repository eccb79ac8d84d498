"""What a run has done so far, on disk after every round: its events, and every number that training gave the world.

One SQLite file per run, in write-ahead mode: a kill at any moment leaves the last whole round. On resumption the world
derives its rows again; the journal holds them to what was written before, and appends from there.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgefl.errors import EdgeflError
from edgefl.simulation.log import Event

_TABLES = """
CREATE TABLE IF NOT EXISTS events (position INTEGER PRIMARY KEY, row TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS numbers (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS rounds (round INTEGER PRIMARY KEY, events INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS checkpoints (round INTEGER PRIMARY KEY, manifest TEXT NOT NULL);
"""


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
        self._known_events = int(self._one("SELECT COUNT(*) FROM events"))
        self._numbers = dict(self._file.execute("SELECT key, value FROM numbers"))
        self._position = 0
        self._rows: list[tuple[int, str]] = []
        self._fresh: dict[str, str] = {}

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
        for event in events:
            row = json.dumps(event)
            if self._position < self._known_events:
                known = self._one("SELECT row FROM events WHERE position = ?", self._position)
                if known != row:
                    raise LogDiffers(f"event {self._position} was {known}, and is now {row}: the run cannot be resumed")
            else:
                self._rows.append((self._position, row))
            self._position += 1

    def recall(self, key: str) -> Any:
        """A number that training gave in an earlier process.

        Raises:
            LogDiffers: it was never given.
        """
        if key not in self._numbers:
            raise LogDiffers(f"the journal does not know '{key}', which the run now asks for: it cannot be resumed")
        return json.loads(self._numbers[key])

    def note(self, key: str, value: Any) -> None:
        """A number that training gives now; non-finite ones are kept as such.

        Raises:
            LogDiffers: an earlier process was given another one.
        """
        text = json.dumps(value)
        if key in self._numbers:
            if self._numbers[key] != text:
                raise LogDiffers(f"'{key}' was {self._numbers[key]}, and is now {text}: the run cannot be resumed")
            return
        self._numbers[key] = self._fresh[key] = text

    def commit(self, round: int) -> None:
        """Everything taken and noted since the last commit belongs to rounds up to ``round``, and is safe from now on.

        Args:
            round: rounds that have ended.
        """
        with self._file:
            self._file.execute("BEGIN")
            self._file.executemany("INSERT INTO events VALUES (?, ?)", self._rows)
            self._file.executemany("INSERT INTO numbers VALUES (?, ?)", list(self._fresh.items()))
            self._file.execute("INSERT OR REPLACE INTO rounds VALUES (?, ?)", (round, self._position))
        self._rows, self._fresh = [], {}

    def checkpoint(self, round: int, manifest: str) -> None:
        """The checkpoint ``manifest`` of ``round``, which was committed before, is on disk."""
        self._file.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?)", (round, manifest))

    def _one(self, query: str, *values: object) -> Any:
        return self._file.execute(query, values).fetchone()[0]
