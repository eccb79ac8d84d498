"""How to follow a run: a listener's methods are called with its rows as they are made.

Rows are passed on in batches, so a long run needs no more memory than a short one.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgefl.record.events import ABSENT, Event
from edgefl.record.kinds import EventKind
from edgefl.record.rounds import RoundRow
from edgefl.record.summary import SeedResult


class Listener:
    """Follows runs; each method does nothing unless it is overridden.

    At each moment, listeners are called in the order of their list. An error that one raises ends the run and is passed
    on; the listeners after it are not called, and more events of the same instant may follow. A listener must not
    change what the run computes.

    For each run, ``run_began`` is followed by ``events`` and ``round_ended`` in turn, ``simulated``, the last
    ``events``, and ``run_ended``. A resumed run begins again: its listeners also receive the rounds that are on disk.
    """

    def began(self, runs: list[tuple[str, int]], rounds: int) -> None:
        """The runs ``(method's label, seed)`` will follow one after the other, each of at most ``rounds`` rounds."""

    def advised(self, advice: str) -> None:
        """A sentence about this processor and the run's precision, after ``began``; not called if there is none."""

    def run_began(self, label: str, seed: int) -> None:
        """The run of a method with a seed begins; its data are loaded."""

    def events(self, rows: list[Event]) -> None:
        """The next rows of the log. All rows of a round come before its ``round_ended``."""

    def round_ended(self, row: RoundRow) -> None:
        """A round has ended, and its row is complete."""

    def simulated(self, rounds: int) -> None:
        """No more rounds follow, and the last model, after ``rounds`` rounds, is evaluated; not called after a fault.

        Only the rows of the log that give the reason for the end follow. A fault of a part of the method
        (:class:`~edgefl.training.faults.PartFault`) that is raised here becomes this reason.
        """

    def run_ended(self, result: SeedResult) -> None:
        """The run has ended; ``result`` is its entry in ``summary.json``."""


_tuple = tuple.__new__


class EventLog:
    """Collects rows and passes them to listeners."""

    BATCH = 2048
    """The largest number of rows that are collected."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._rows: list[Event] = []
        self._passed = 0
        self.rounds = 0
        self._listeners = listeners

    @property
    def written(self) -> int:
        return self._passed + len(self._rows)

    def write(
        self,
        time: float,
        kind: EventKind,
        round: int = ABSENT - 1,
        client: int = ABSENT,
        dispatch: int = ABSENT,
        *,
        group: int = ABSENT,
        alpha: int = ABSENT,
        images: int = ABSENT,
        item: str = "",
        flow: int = ABSENT,
        source: str = "",
        target: str = "",
        bytes: float = 0.0,
        seconds: float = 0.0,
        flops: float = 0.0,
        joules: float = 0.0,
        value: float = 0.0,
        detail: str = "",
    ) -> None:
        """Append one row; see :class:`Event` for the columns.

        ``round`` is the exception: here it counts from 0, as in the simulation, and equals the version of the model
        that clients train from.
        """
        rows, number = self._rows, round + 1
        self.rounds += kind == "round_end"
        # Create the tuple directly, without the extra call of a named tuple's constructor.
        rows.append(
            _tuple(
                Event,
                (
                    time, kind, number, client, dispatch, group, alpha, images, item, flow, source, target, bytes,
                    seconds, flops, joules, value, detail,
                ),
            )
        )  # fmt: skip
        if len(rows) >= self.BATCH:
            self.flush()

    def flush(self) -> None:
        rows, self._rows = self._rows, []
        self._passed += len(rows)
        if rows:
            for listener in self._listeners:
                listener.events(rows)
