"""A learner whose every number is on disk, so that an interrupted run can be re-executed without training again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from pydantic import TypeAdapter
from torch import Tensor

from edgefl.errors import UserError
from edgefl.experiment.checkpoint_writer import CheckpointWriter
from edgefl.experiment.checkpoints import CheckpointDamaged, read_checkpoint
from edgefl.experiment.journal import Journal, LogDiffers
from edgefl.training.job import Digests, Evaluation, Feedback, JobId, Learner, Mixing, TrainingJob

CHECKPOINT_EVERY = 10
"""Rounds between checkpoints. A kill costs the rounds since the last one that is whole; it is written meanwhile."""

_DIGESTS: TypeAdapter[Digests | None] = TypeAdapter(Digests | None)
_FEEDBACK, _EVALUATION = TypeAdapter(Feedback), TypeAdapter(Evaluation)


class ResumableLearner(Learner, Protocol):
    """A learner that can be put on disk between two rounds."""

    def snapshot(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that it holds: tensors by name, and the rest as JSON data."""

    def restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Hold what :meth:`snapshot` gave, instead of what it holds."""


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
        self._folder = folder
        self._writer = CheckpointWriter(folder, journal)
        self._until = 0
        self._held: tuple[dict[str, Tensor], dict[str, Any]] | None = None
        for round, manifest in journal.checkpoints():
            try:
                self._held = read_checkpoint(folder, manifest, round=round)
            except CheckpointDamaged:
                journal.forget(round)  # else what is written from now on would build on it
                continue
            self._until = round
            break

    @property
    def _live(self) -> bool:
        return self._held is None

    def submit(self, job: TrainingJob) -> None:
        """See :class:`~edgefl.training.job.Learner`."""
        if self._live:
            self._learner.submit(job)

    def discard(self, job: JobId) -> None:
        """See :class:`~edgefl.training.job.Learner`."""
        if self._live:
            self._learner.discard(job)

    def aggregate(self, version: int, jobs: list[JobId], round: int, mixing: Mixing | None = None) -> int:
        """See :class:`~edgefl.training.job.Learner`."""
        return self._learner.aggregate(version, jobs, round, mixing) if self._live else version + 1

    def digests(self, version: int) -> Digests | None:
        """See :class:`~edgefl.training.job.Learner`."""
        key = f"digests {version}"
        if not self._live:
            return self._journal.recall(key, _DIGESTS)
        digests = self._learner.digests(version)
        self._journal.note(key, digests)
        return digests

    def feedback(self, job: JobId) -> Feedback:
        """See :class:`~edgefl.training.job.Learner`."""
        key = f"feedback {job.client} {job.dispatch}"
        if not self._live:
            return self._journal.recall(key, _FEEDBACK)
        numbers = self._learner.feedback(job)
        self._journal.note(key, numbers)
        return numbers

    def evaluate(self, version: int) -> Evaluation:
        """See :class:`~edgefl.training.job.Learner`."""
        key = f"evaluation {version}"
        if not self._live:
            return self._journal.recall(key, _EVALUATION)
        numbers = self._learner.evaluate(version)
        self._journal.note(key, numbers)
        return numbers

    def round_ended(self, rounds: int) -> None:
        """Round number ``rounds`` (from 1) has ended, the journal has its rows, and all its numbers were asked for."""
        if self._held is not None:
            if rounds == self._until:
                self._restore(*self._held)
                self._held = None
            return
        self._journal.commit(rounds)
        self._writer.collect()
        if rounds % CHECKPOINT_EVERY == 0 and rounds != self._last:
            self._writer.begin(rounds, *self._learner.snapshot())

    def left(self, rounds: int) -> None:
        """The run is left after round number ``rounds``: it is to go on from there without training anything again."""
        if self._live and self._until < rounds:
            self._writer.begin(rounds, *self._learner.snapshot())
            self._writer.finish()

    def _restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        try:
            self._learner.restore(tensors, facts)
        except (KeyError, ValueError, TypeError, AttributeError, IndexError, OverflowError) as error:
            self._journal.forget(self._until)
            raise UserError(
                f"the checkpoint of round {self._until} is damaged ({type(error).__name__}: {error}); the next "
                "resumption uses an older one, or none",
                file=str(self._folder),
            ) from None

    def __enter__(self) -> Self:
        self._writer.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.__exit__(kind, error, trace)
        if error is None and self._held is not None:
            raise LogDiffers(f"the run ends before round {self._until}, which has a checkpoint: it cannot be resumed")
