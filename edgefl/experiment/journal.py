"""The journal of one run: the events of each round, appended when the round ends.

They contain every number from training. A kill leaves whole rounds and perhaps a piece of one, which is cut off. On
resumption the world derives its rows again; the journal compares them with those before, and appends new ones.
"""

import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

from edgefl.errors import EdgeflError
from edgefl.record.events import Event, Listener
from edgefl.record.unfinished import HEAD, packed, unpacked


class LogDiffers(EdgeflError):  # noqa: N818  (what it says of the log)
    """A re-executed run differs from the rows in its journal."""


class Journal(Listener, AbstractContextManager["Journal"]):
    """The journal of one run; use as a context manager."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("a+b", buffering=0)
        self._ends = [0]  # of each whole round
        size = path.stat().st_size
        while (end := self._end_of_next()) <= size:
            self._ends.append(end)
        self._file.truncate(self._ends[-1])
        self._known = self.rows()
        self._ahead: Event | None = next(self._known, None)
        self._position = 0
        self._rows: list[Event] = []

    def __exit__(self, *error: object) -> None:
        self._file.close()

    @property
    def rounds(self) -> int:
        return len(self._ends) - 1

    def rows(self) -> Iterator[Event]:
        """The rows in it, in order."""
        for begin, end in zip(self._ends[:-1], self._ends[1:], strict=True):
            yield from unpacked(os.pread(self._file.fileno(), end - begin - HEAD, begin + HEAD))

    def events(self, rows: list[Event]) -> None:
        """Add the next rows; LogDiffers if one that an earlier process also wrote differs from its row."""
        for number, event in enumerate(rows):
            then = self._ahead
            if then is None:
                self._rows += rows[number:]
                return
            # NaN is not equal to itself, but is written in the same way.
            if then != event and packed([then]) != packed([event]):
                was, now = json.dumps(then), json.dumps(event)
                raise LogDiffers(f"event {self._position} was {was}, and is now {now}: the run cannot be resumed")
            self._position += 1
            self._ahead = next(self._known, None)

    def commit(self) -> None:
        """Write the rows of the round that has ended; nothing if an earlier process wrote them."""
        if not self._rows:
            return
        content = packed(self._rows)
        left = memoryview(len(content).to_bytes(HEAD, "little") + content)
        while left:
            left = left[self._file.write(left) :]
        self._ends.append(self._ends[-1] + HEAD + len(content))
        self._rows = []

    def _end_of_next(self) -> int:
        head = os.pread(self._file.fileno(), HEAD, self._ends[-1])
        return self._ends[-1] + HEAD + int.from_bytes(head, "little")
