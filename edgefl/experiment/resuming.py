"""A learner that resumes: it answers from the journal up to the newest checkpoint, then trains."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from torch import Tensor

from edgefl.errors import UserError
from edgefl.experiment.checkpoints import Checkpoints
from edgefl.experiment.journal import Journal, LogDiffers
from edgefl.experiment.pausing import Paused
from edgefl.experiment.recording import RecordedLearner, recording_of
from edgefl.record.listener import Listener
from edgefl.record.rounds import RoundRow
from edgefl.training.job import Learner

CHECKPOINT_EVERY = 10
"""Rounds between checkpoints. A kill costs the rounds since the last one that is whole; it is written meanwhile."""


class ResumableLearner(Learner, Protocol):
    """A learner whose state can be stored between two rounds."""

    def snapshot(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The complete state: tensors by name, and the rest as JSON data."""

    def restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Replace the state by one that :meth:`snapshot` returned."""


class ResumedLearner(Listener):
    """A :class:`~edgefl.training.job.Learner` that trains with another one and writes checkpoints.

    A resumed run first repeats recorded rounds: up to the newest checkpoint, answers come from the rows of the journal
    and nothing is trained. Then the checkpoint's tensors are loaded and training continues. It commits the journal
    after every round, so the journal comes before it in the list of listeners. As a context manager it completes its
    last checkpoint; a paused run gets one of its last round, so that nothing is trained again.

    Args:
        last: the last round, which needs no checkpoint; ``None`` if something is trained after it.

    Attributes:
        until: the round of the newest checkpoint; 0 if there is none.
    """

    def __init__(
        self, learner: ResumableLearner, method: str, journal: Journal, folder: Path, last: int | None = None
    ) -> None:
        self._learner = learner
        self._journal = journal
        self._last = last
        self._folder = folder
        self._checkpoints = Checkpoints(folder)
        self._answers: Learner = learner
        self._held: tuple[dict[str, Tensor], dict[str, Any]] | None = None
        self.until = 0
        found = self._checkpoints.newest()
        # After a power failure the journal may lack the last rounds; then the run is trained from its start.
        if found is not None and found[0] <= journal.rounds:
            self.until, tensors, facts = found
            self._held = tensors, facts
            self._answers = RecordedLearner(recording_of(journal.rows()), method, _missing)

    def __getattr__(self, name: str) -> Any:
        """The methods of a learner are those of the one that answers now."""
        return getattr(self._answers, name)

    def round_ended(self, row: RoundRow) -> None:
        if self._held is not None:
            if row.round == self.until:
                self._restore(*self._held)
                self._held, self._answers = None, self._learner
            return
        self._journal.commit()
        if row.round % CHECKPOINT_EVERY == 0 and row.round != self._last:
            self._checkpoints.begin(row.round, *self._learner.snapshot())

    def _restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        try:
            self._learner.restore(tensors, facts)
        except (LookupError, ValueError, TypeError, AttributeError) as error:
            raise UserError(
                f"the checkpoint of round {self.until} does not fit ({error!r}); without this folder the run is "
                "trained from its start",
                file=str(self._folder),
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Paused) and self._held is None and self.until < error.round:
            self._checkpoints.begin(error.round, *self._learner.snapshot())
            self._checkpoints.finish()
        self._checkpoints.__exit__(kind, error, trace)
        if error is None and self._held is not None:
            raise LogDiffers(f"the run ends before round {self.until}, which has a checkpoint: it cannot be resumed")


def _missing(name: str) -> LogDiffers:
    return LogDiffers(f"the journal has no {name}, which the run now requires: it cannot be resumed")
