"""A learner that resumes: it answers from the journal up to the newest checkpoint, then trains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from torch import Tensor

from edgefl.errors import UserError
from edgefl.experiment.checkpoint_writer import CheckpointWriter
from edgefl.experiment.checkpoints import CheckpointDamaged, read_checkpoint
from edgefl.experiment.journal import Journal, LogDiffers
from edgefl.experiment.pausing import Paused
from edgefl.experiment.recorded_learner import RecordedLearner
from edgefl.record.listener import Listener
from edgefl.record.rounds import RoundRow
from edgefl.training.job import Digests, Evaluation, Feedback, JobId, Learner, Mixing, TrainingJob

CHECKPOINT_EVERY = 10
"""Rounds between checkpoints. A kill costs the rounds since the last one that is whole; it is written meanwhile."""


class ResumableLearner(Learner, Protocol):
    """A learner whose state can be stored between two rounds."""

    def snapshot(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The complete state: tensors by name, and the rest as JSON data."""

    def restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Replace the state by one that :meth:`snapshot` returned."""


class ResumedLearner(Listener):
    """Trains with another learner and writes checkpoints; a resumed run first repeats recorded rounds.

    Up to the newest valid checkpoint, answers come from the rows of the journal and nothing is trained. Then the
    checkpoint's tensors are loaded and training continues. It commits the journal after every round, so the journal
    comes before it in the list of listeners. As a context manager it completes its last checkpoint; a paused run gets
    one of its last round, so that nothing is trained again.

    Args:
        learner: trains.
        method: the method's label.
        journal: the run's journal.
        folder: the folder of checkpoints.
        last: the last round, which needs no checkpoint; ``None`` if something is trained after it.

    Attributes:
        until: the round of the newest valid checkpoint; 0 if there is none.
    """

    def __init__(
        self,
        learner: ResumableLearner,
        method: str,
        journal: Journal,
        folder: Path,
        last: int | None = None,
    ) -> None:
        self._learner = learner
        self._journal = journal
        self._last = last
        self._folder = folder
        self._writer = CheckpointWriter(folder, journal)
        self.until = 0
        self._held: tuple[dict[str, Tensor], dict[str, Any]] | None = None
        for round, manifest in journal.checkpoints():
            try:
                self._held = read_checkpoint(folder, manifest, round=round)
            except CheckpointDamaged:
                journal.forget(round)  # otherwise later checkpoints would build on it
                continue
            self.until = round
            break
        self._answers: Learner = learner
        if self._held is not None:
            self._answers = RecordedLearner(journal.recording(), method, _missing)

    def submit(self, job: TrainingJob) -> None:
        """See :class:`~edgefl.training.job.Learner`."""
        self._answers.submit(job)

    def received(self, client: int, version: int) -> None:
        """See :class:`~edgefl.training.job.Learner`."""
        self._answers.received(client, version)

    def discard(self, job: JobId) -> None:
        """See :class:`~edgefl.training.job.Learner`."""
        self._answers.discard(job)

    def aggregate(self, version: int, jobs: list[JobId], round: int, mixing: Mixing | None = None) -> int:
        """See :class:`~edgefl.training.job.Learner`."""
        return self._answers.aggregate(version, jobs, round, mixing)

    def digests(self, version: int) -> Digests | None:
        """See :class:`~edgefl.training.job.Learner`."""
        return self._answers.digests(version)

    def feedback(self, job: JobId) -> Feedback:
        """See :class:`~edgefl.training.job.Learner`."""
        return self._answers.feedback(job)

    def local_losses(self, version: int, clients: Sequence[int], images: int | None) -> list[float]:
        """See :class:`~edgefl.training.job.Learner`."""
        return self._answers.local_losses(version, clients, images)

    def evaluate(self, version: int) -> Evaluation:
        """See :class:`~edgefl.training.job.Learner`."""
        return self._answers.evaluate(version)

    def round_ended(self, row: RoundRow) -> None:
        """Commit the round, and write a checkpoint if it is time for one."""
        if self._held is not None:
            if row.round == self.until:
                self._restore(*self._held)
                self._held, self._answers = None, self._learner
            return
        self._journal.commit(row.round)
        self._writer.collect()
        if row.round % CHECKPOINT_EVERY == 0 and row.round != self._last:
            self._writer.begin(row.round, *self._learner.snapshot())

    def _restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        try:
            self._learner.restore(tensors, facts)
        except (KeyError, ValueError, TypeError, AttributeError, IndexError, OverflowError) as error:
            self._journal.forget(self.until)
            raise UserError(
                f"the checkpoint of round {self.until} is damaged ({type(error).__name__}: {error}); the next "
                "--resume uses an older one, or none",
                file=str(self._folder),
            ) from None

    def __enter__(self) -> Self:
        self._writer.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Paused) and self._held is None and self.until < error.round:
            self._writer.begin(error.round, *self._learner.snapshot())
            self._writer.finish()
        self._writer.__exit__(kind, error, trace)
        if error is None and self._held is not None:
            raise LogDiffers(f"the run ends before round {self.until}, which has a checkpoint: it cannot be resumed")


def _missing(name: str) -> LogDiffers:
    return LogDiffers(f"the journal has no {name}, which the run now requires: it cannot be resumed")
