"""A learner that returns recorded results: the simulation runs again, and nothing is trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edgefl.experiment.recording import Recording
from edgefl.training.faults import Diverged
from edgefl.training.job import Digests, Evaluation, Feedback, JobId, Mixing, TrainingJob


class RecordedLearner:
    """Returns the numbers that training returned when the rows were written; implements ``training.job.Learner``.

    Resuming, replaying and verifying a run differ in what they do if a number is not recorded.

    Args:
        recording: the recorded training.
        method: the method's label.
        missing: makes the error for a number that is not recorded, from its name.
    """

    def __init__(self, recording: Recording, method: str, missing: Callable[[str], Exception]) -> None:
        self._recording = recording
        self._method = method
        self._missing = missing

    def submit(self, job: TrainingJob) -> None:
        """See :class:`~edgefl.training.job.Learner`."""

    def received(self, client: int, version: int) -> None:
        """See :class:`~edgefl.training.job.Learner`."""

    def discard(self, job: JobId) -> None:
        """See :class:`~edgefl.training.job.Learner`."""

    def aggregate(self, version: int, jobs: list[JobId], round: int, mixing: Mixing | None = None) -> int:
        """See :class:`~edgefl.training.job.Learner`."""
        diverged = self._recording.diverged
        if diverged is not None and diverged[0] == round:
            raise Diverged(self._method, round, Diverged.reason_in(diverged[1]))
        return version + 1

    def digests(self, version: int) -> Digests | None:
        """See :class:`~edgefl.training.job.Learner`."""
        return self._recording.digests.get(version)

    def feedback(self, job: JobId) -> Feedback:
        """See :class:`~edgefl.training.job.Learner`."""
        found = self._recording.feedback.get((job.client, job.dispatch))
        if found is None:
            raise self._missing(f"feedback of job {job.dispatch} of client {job.client}")
        return found

    def local_losses(self, version: int, clients: Sequence[int], images: int | None) -> list[float]:
        """See :class:`~edgefl.training.job.Learner`."""
        known = self._recording.local_losses
        for client in clients:
            if (version, client) not in known:
                raise self._missing(f"loss of version {version} on client {client}")
        return [known[version, client] for client in clients]

    def evaluate(self, version: int) -> Evaluation:
        """See :class:`~edgefl.training.job.Learner`."""
        found = self._recording.evaluations.get(version)
        if found is None:
            raise self._missing(f"evaluation of version {version}")
        return found
