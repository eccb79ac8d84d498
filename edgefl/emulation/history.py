"""What an interrupted emulation has measured, so that its rounds can be repeated before it goes on."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

from edgefl.record.events import Event
from edgefl.record.listener import EventLog

_TRAINED = ("compute_end", "compute_partial")


class History:
    """The measured moments of the rounds up to a checkpoint.

    A world is repeated exactly if transfers end at the same moments and in the same order as before, and if the world
    reads the same progress of those that have not ended: all else follows from them. Where a measured moment is also
    that of another event, the number of rows in the log decides which one is first.

    Args:
        rows: the log of these rounds.
        trains: whether the seconds of local training were measured, too.

    Attributes:
        rounds: the number of rounds.
    """

    def __init__(self, rows: Sequence[Event], *, trains: bool) -> None:
        kinds = ("transfer_end", *_TRAINED) if trains else ("transfer_end",)
        self.rounds = sum(row.kind == "round_end" for row in rows)
        self._length = len(rows)
        self._reports = deque((place, row) for place, row in enumerate(rows) if row.kind in kinds)
        self._dropped = {row.flow: int(row.bytes) for row in rows if row.kind == "transfer_drop"}
        self._progress: defaultdict[int, deque[int]] = defaultdict(deque)
        for row in rows:
            if row.kind == "progress":
                self._progress[row.flow].append(int(row.bytes))
        self._log: EventLog | None = None

    def follow(self, log: EventLog) -> None:
        """The world that repeats them writes to this log."""
        self._log = log

    @property
    def active(self) -> bool:
        """Whether the world has not yet repeated all of it."""
        return self._log is not None and self._log.written < self._length

    def comes_before(self, event: float) -> bool:
        """Whether a measured moment comes before the world's next event, which is at this time."""
        if not self._reports or self._log is None:
            return False
        place, row = self._reports[0]
        return row.time < event or (row.time == event and self._log.written >= place)

    def take(self) -> Event:
        """The row of the next measured moment."""
        return self._reports.popleft()[1]

    def progress(self, flow: int) -> int:
        """The bytes of a transfer in progress that had arrived when they were measured next, or when it was aborted."""
        measured = self._progress[flow]
        return measured.popleft() if measured else self.delivered(flow)

    def delivered(self, flow: int) -> int:
        """The bytes of a transfer that had arrived when it was aborted."""
        return self._dropped.get(flow, 0)
