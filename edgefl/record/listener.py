"""How to follow a run: a listener's methods are called with its rows as they are made."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgefl.record.events import Event
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

    def results_reused(self, seed: int, trained: int, found: int) -> None:
        """All methods of a seed have ended: ``trained`` jobs were trained, and ``found`` cached results were used."""
