"""The journal of a run: its events, written after every round. They contain every number from training.

One SQLite file per run, in write-ahead mode: a kill at any moment leaves the last whole round. On resumption the world
derives its rows again; the journal compares them with the rows written before, and appends the new ones.
"""

from __future__ import annotations

import json
import sqlite3
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from edgefl.errors import EdgeflError, UserError
from edgefl.experiment.recording import DAMAGED, Recording, recording_of
from edgefl.record.events import Event
from edgefl.record.listener import Listener

_COLUMNS = {
    "events": "position INTEGER PRIMARY KEY, figures BLOB NOT NULL, words TEXT NOT NULL",
    "rounds": "round INTEGER PRIMARY KEY, events INTEGER NOT NULL",
    "manifests": "round INTEGER PRIMARY KEY, manifest TEXT NOT NULL",
    "replies": (
        "job INTEGER PRIMARY KEY, message TEXT NOT NULL, work TEXT NOT NULL, reply BLOB NOT NULL, context BLOB NOT NULL"
    ),
}
_TABLES = {name: f"CREATE TABLE {name} ({columns})" for name, columns in _COLUMNS.items()}

_OF_THE_SYSTEM = frozenset(
    {
        sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_NOLFS,
    }
)  # fmt: skip
"""SQLite's errors whose cause is the disk or the system; all others mean that the file is damaged."""

T = TypeVar("T")


class Reply(NamedTuple):
    """What a client of a Flower app answered to a message.

    Attributes:
        message: the digest of the message.
        work: what the answer took, as JSON.
        reply, context: the reply and the node's context after it, as Flower serialises them.
    """

    message: str
    work: str
    reply: bytes
    context: bytes


_WHOLE, _WORDS = (
    [place for place, value in enumerate(Event(0.0, "run")) if isinstance(value, kind)] for kind in (int, str)
)
_FIGURES = [place for place in range(len(Event._fields)) if place not in _WORDS]


class LogDiffers(EdgeflError):  # noqa: N818  (what it says of the log)
    """A re-executed run differs from the rows in its journal."""


class Journal(Listener):
    """The journal of one run; use as a context manager.

    Args:
        path: the SQLite file; created if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # One explicit transaction for each round.
        self._file = sqlite3.connect(path, isolation_level=None)
        try:
            with self._sound():
                self._open()
                self._known_events = self._committed_events()
        except BaseException:
            self._file.close()
            raise
        self._known = self._known_rows()
        self._position = 0
        self._rows: list[tuple[int, bytes, str]] = []

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def checkpoints(self) -> list[tuple[int, str]]:
        """Rounds that have a checkpoint, newest first, with the names of their manifests."""
        with self._sound():
            found = list(self._file.execute("SELECT round, manifest FROM manifests ORDER BY round DESC"))
            return [(_of(int, round), _of(str, manifest)) for round, manifest in found]

    def events(self, rows: list[Event]) -> None:
        """Add the next rows; those that an earlier process also wrote are compared with its rows.

        Raises:
            LogDiffers: a row differs from the written one.
        """
        known = min(self._known_events - self._position, len(rows))
        for event in rows[: max(known, 0)]:
            with self._sound():
                then = next(self._known)
            # NaN is not equal to itself, but is written in the same way.
            if then != event and packed([then]) != packed([event]):
                was, now = json.dumps(then), json.dumps(event)
                raise LogDiffers(f"event {self._position} was {was}, and is now {now}: the run cannot be resumed")
            self._position += 1
        fresh = rows[max(known, 0) :]
        if fresh:
            self._rows.append((self._position, *packed(fresh)))
            self._position += len(fresh)

    @property
    def repeated(self) -> bool:
        """Whether all rows of earlier processes have been derived again."""
        return self._position >= self._known_events

    def recording(self) -> Recording:
        """The training that earlier processes recorded.

        Raises:
            UserError: a row is damaged.
        """
        with self._sound():
            return recording_of(self._known_rows())

    def commit(self, round: int) -> None:
        """Commit everything added since the last commit; it belongs to rounds up to ``round``.

        Args:
            round: rounds that have ended.
        """
        with self._sound(), self._file:
            self._file.execute("BEGIN")
            self._file.executemany("INSERT INTO events VALUES (?, ?, ?)", self._rows)
            self._file.execute("INSERT OR REPLACE INTO rounds VALUES (?, ?)", (round, self._position))
        self._rows = []

    def checkpoint(self, round: int, manifest: str) -> None:
        """Record that the checkpoint ``manifest`` of ``round`` is on disk; the round was committed before.

        This flushes the journal and all earlier commits, so that older checkpoints can be removed.
        """
        with self._sound():
            self._file.execute("PRAGMA synchronous=FULL")
            self._file.execute("INSERT OR REPLACE INTO manifests VALUES (?, ?)", (round, manifest))
            self._file.execute("PRAGMA synchronous=NORMAL")

    def forget(self, round: int) -> None:
        """Remove the record of the unusable checkpoint of ``round``."""
        with self._sound():
            self._file.execute("DELETE FROM manifests WHERE round = ?", (round,))

    def reply(self, client: int, dispatch: int) -> Reply | None:
        """The reply of a client to one of its messages, if it was recorded.

        Raises:
            UserError: it is damaged.
        """
        query = "SELECT message, work, reply, context FROM replies WHERE job = ?"
        with self._sound():
            found = self._file.execute(query, (_job(client, dispatch),)).fetchone()
            if found is None:
                return None
            message, work, reply, context = found
            return Reply(_of(str, message), _of(str, work), _of(bytes, reply), _of(bytes, context))

    def record(self, client: int, dispatch: int, reply: Reply) -> None:
        """Record a reply at once; a kill in the middle of a round does not lose it."""
        with self._sound():
            self._file.execute(
                "INSERT OR REPLACE INTO replies VALUES (?, ?, ?, ?, ?)", (_job(client, dispatch), *reply)
            )

    def recorded_bytes(self) -> int:
        """The bytes of all recorded replies and contexts."""
        with self._sound():
            query = "SELECT COALESCE(SUM(LENGTH(reply) + LENGTH(context)), 0) FROM replies"
            return _of(int, self._file.execute(query).fetchone()[0])

    def damaged_reply(self, error: Exception) -> UserError:
        """The error for a recorded reply that cannot be read."""
        return self._damaged(error)

    @contextmanager
    def _sound(self) -> Iterator[None]:
        """Report contents that edgefl did not write as a damaged journal; errors of the disk are passed on."""
        try:
            yield
        except sqlite3.Error as error:
            # An extended code has its primary code in the lowest byte; errors of the module itself have none.
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _OF_THE_SYSTEM:
                raise
            raise self._damaged(error) from None
        except DAMAGED as error:
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> UserError:
        reason = " ".join(str(error).split()) or type(error).__name__
        reason = reason if len(reason) <= 200 else f"{reason[:197]}..."
        return UserError(f"journal damaged ({reason}); the run cannot be resumed", file=str(self._path))

    def _open(self) -> None:
        """Set how SQLite works, and create the tables of a new file.

        Raises:
            ValueError: the file has other tables than a journal, or views or triggers.
        """
        for setting in (
            "trusted_schema=OFF", "cell_size_check=ON", "journal_mode=WAL", "synchronous=NORMAL",
            "fullfsync=ON",  # on macOS a plain fsync leaves data in the disk's own cache
        ):  # fmt: skip
            self._file.execute(f"PRAGMA {setting}")
        if not self._file.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
            with self._file:
                self._file.execute("BEGIN")
                for table in _TABLES.values():
                    self._file.execute(table)
        found = set(self._file.execute("SELECT type, name, tbl_name, sql FROM sqlite_master LIMIT 100"))
        if found != {("table", name, name, table) for name, table in _TABLES.items()}:
            raise ValueError(f"expected the tables {', '.join(_TABLES)}")

    def _committed_events(self) -> int:
        (found,) = self._file.execute("SELECT COALESCE(MAX(events), 0) FROM rounds").fetchone()
        return _of(int, found)

    def _known_rows(self) -> Iterator[Event]:
        """The rows of earlier processes, in order; the whole table may be too large for memory."""
        position = 0
        while position < self._known_events:
            group = self._file.execute("SELECT figures, words FROM events WHERE position = ?", (position,)).fetchone()
            if group is None:
                raise ValueError(f"event {position} is missing")
            rows = unpacked(*group)
            position += len(rows)
            yield from rows


def _job(client: int, dispatch: int) -> int:
    """One number for a job; a key of two columns would need an index of its own."""
    return client << 32 | dispatch


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
    """The rows of :func:`packed`, at least one.

    Raises:
        ValueError, TypeError, OverflowError, RecursionError: they are damaged.
    """
    numbers = array("d", _of(bytes, figures))
    rows, rest = divmod(len(numbers), len(_FIGURES))
    columns: dict[int, Sequence[Any]] = dict(zip(_WORDS, _texts(json.loads(_of(str, words)), rows), strict=True))
    if rows == 0 or rest:
        raise ValueError(f"expected rows of {len(_FIGURES)} figures, found {len(numbers)} figures")
    for number, place in enumerate(_FIGURES):
        column = numbers[number * rows : (number + 1) * rows]
        columns[place] = [int(each) for each in column] if place in _WHOLE else column
    return [Event(*row) for row in zip(*(columns[place] for place in range(len(columns))), strict=True)]


def _texts(columns: Any, rows: int) -> Iterable[list[str]]:
    for column in _of(list, columns):
        if len(_of(list, column)) != rows or not all(isinstance(word, str) for word in column):
            raise ValueError(f"expected columns of {rows} texts")
        yield column


def _of(kind: type[T], value: Any) -> T:
    """The value, which must be of this type."""
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}, found {type(value).__name__}")
    return value
