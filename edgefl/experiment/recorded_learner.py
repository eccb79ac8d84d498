"""A learner whose every number is on disk, so that an interrupted run can be re-executed without training again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from torch import Tensor

from edgefl.experiment.checkpoint_writer import CheckpointWriter
from edgefl.experiment.checkpoints import CheckpointDamaged, read_checkpoint
from edgefl.experiment.journal import Journal
from edgefl.learning.job import Evaluation, Feedback, JobId, Learner, Mixing, TrainingJob

CHECKPOINT_EVERY = 10
"""Rounds between checkpoints. A kill costs the rounds since the last one that is whole; it is written meanwhile."""


class ResumableLearner(Learner, Protocol):
    """A learner that can be put on disk between two rounds."""

    @property
    def at_work(self) -> bool:
        """Whether all that train are at work without help."""

    def leave(self) -> None:
        """Nothing more will be asked for."""

    def snapshot(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that it holds: tensors by name, and the rest as JSON data."""

    def restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Hold what :meth:`snapshot` gave, instead of what it holds."""


class _Round(NamedTuple):
    """A round that has ended, and is to be written.

    Attributes:
        number: from 1.
        hand_over: hands its rows to the journal.
        snapshot: what the learner held at its end, where a checkpoint is due.
    """

    number: int
    hand_over: Callable[[], None]
    snapshot: tuple[dict[str, Tensor], dict[str, Any]] | None


class RecordedLearner:
    """Trains through another learner and keeps its numbers; first replays what an earlier process had reached.

    Up to the newest sound checkpoint the world's questions are answered from the journal and nothing is trained; there
    the checkpoint's tensors are loaded, and training goes on. Used as a context manager, it sees its last checkpoint
    off.

    Args:
        learner: trains.
        journal: the run's journal.
        folder: where checkpoints are kept.
        last: the round that nothing follows, so that it needs no checkpoint; ``None`` where something is trained after
            the last one, too.
    """

    def __init__(self, learner: ResumableLearner, journal: Journal, folder: Path, last: int | None = None) -> None:
        self._learner = learner
        self._journal = journal
        self._last = last
        self._writer = CheckpointWriter(folder, journal)
        self._until = 0
        self._held: tuple[dict[str, Tensor], dict[str, Any]] | None = None
        self._unwritten: _Round | None = None
        for round, manifest in journal.checkpoints():
            try:
                self._held = read_checkpoint(folder, manifest)
            except CheckpointDamaged:
                journal.forget(round)  # else what is written from now on would build on it
                continue
            self._until = round
            break

    @property
    def _live(self) -> bool:
        return self._held is None

    def expect(self, job: TrainingJob) -> None:
        """See :class:`~edgefl.learning.job.Learner`."""
        if self._live:
            self._learner.expect(job)
            if self._unwritten is not None and self._learner.at_work:
                self.write()

    def expect_evaluation(self, version: int) -> None:
        """See :class:`~edgefl.learning.job.Learner`."""
        if self._live:
            self._learner.expect_evaluation(version)

    def submit(self, job: TrainingJob) -> None:
        """See :class:`~edgefl.learning.job.Learner`."""
        if self._live:
            self.write()
            self._learner.submit(job)

    def discard(self, job: JobId) -> None:
        """See :class:`~edgefl.learning.job.Learner`."""
        if self._live:
            self._learner.discard(job)

    def aggregate(self, version: int, jobs: list[JobId], round: int, mixing: Mixing | None = None) -> int:
        """See :class:`~edgefl.learning.job.Learner`."""
        return self._learner.aggregate(version, jobs, round, mixing) if self._live else version + 1

    def feedback(self, job: JobId) -> Feedback:
        """See :class:`~edgefl.learning.job.Learner`."""
        key = f"feedback {job.client} {job.dispatch}"
        if not self._live:
            return Feedback(*self._journal.recall(key))
        numbers = self._learner.feedback(job)
        self._journal.note(key, numbers)
        return numbers

    def evaluate(self, version: int) -> Evaluation:
        """See :class:`~edgefl.learning.job.Learner`."""
        key = f"evaluation {version}"
        if not self._live:
            return Evaluation(*self._journal.recall(key))
        numbers = self._learner.evaluate(version)
        self._journal.note(key, numbers)
        return numbers

    def round_ended(self, rounds: int, hand_over: Callable[[], None]) -> None:
        """Round number ``rounds`` (from 1) has ended, and the world has asked all that it will ask about it.

        It is written when training of the next round is under way or, where that does not begin early, when its first
        job starts; at the latest before any later row.

        Args:
            rounds: its number.
            hand_over: hands the rows up to here to the journal.
        """
        if self._held is not None:
            hand_over()
            if rounds == self._until:
                self._learner.restore(*self._held)
                self._held = None
            return
        self.write()
        due = rounds % CHECKPOINT_EVERY == 0 and rounds != self._last
        self._unwritten = _Round(rounds, hand_over, self._learner.snapshot() if due else None)

    def write(self) -> None:
        """Write the round that has ended, if that is still to be done."""
        if self._unwritten is None:
            return
        ended, self._unwritten = self._unwritten, None
        ended.hand_over()
        self._journal.commit(ended.number)
        self._writer.collect()
        if ended.snapshot is not None:
            self._writer.begin(ended.number, *ended.snapshot)

    def left(self, rounds: int) -> None:
        """The run is left after round number ``rounds``: it is to go on from there without training anything again."""
        self.write()
        if self._live and self._until < rounds:
            self._writer.begin(rounds, *self._learner.snapshot())
            self._writer.finish()

    def __enter__(self) -> Self:
        self._writer.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._learner.leave()
        self._writer.__exit__(kind, error, trace)
