"""A learner that repeats a finished run's numbers, as long as the world asks for exactly the same training."""

from __future__ import annotations

from edgefl.errors import UserError
from edgefl.rerun.recording import Recording
from edgefl.training.faults import Diverged
from edgefl.training.job import Digests, Evaluation, Feedback, JobId, Mixing, TrainingJob


class ReplayedLearner:
    """Answers from a recording; refuses where the world would train something else than was trained.

    Args:
        recording: the finished run's training.
        method: the method's label.
        stateful: whether its clients keep a state, so that a job depends on the client's jobs before it.
    """

    def __init__(self, recording: Recording, method: str, *, stateful: bool) -> None:
        self._recording = recording
        self._method = method
        self._stateful = stateful
        self._submitted: dict[tuple[int, int], TrainingJob] = {}
        self._same: set[tuple[int, int]] = set()

    def submit(self, job: TrainingJob) -> None:
        """See :class:`~edgefl.training.job.Learner`."""
        self._submitted[job.id.client, job.id.dispatch] = job

    def discard(self, job: JobId) -> None:
        """See :class:`~edgefl.training.job.Learner`."""

    def aggregate(self, version: int, jobs: list[JobId], round: int, mixing: Mixing | None = None) -> int:
        """See :class:`~edgefl.training.job.Learner`.

        Raises:
            UserError: these jobs, from the models that they began with, were not aggregated in the finished run.
        """
        known = self._recording.aggregated.get(round)
        here = sorted((id.client, id.dispatch) for id in jobs)
        diverged = self._recording.diverged
        if known is None and not (diverged and diverged[0] == round):
            reason = self._recording.reason
            raise self._refusal(round, f"the finished run ended by '{reason}' before this round")
        if known is not None and sorted(known) != here:
            clients = ", ".join(str(client) for client, _ in sorted(known)) or "nobody"
            others = ", ".join(str(client) for client, _ in here) or "nobody"
            raise self._refusal(round, f"clients {clients} were aggregated, here it would be {others}")
        for job in here:
            self._check(job, round)
        if diverged and diverged[0] == round:
            raise Diverged(self._method, round, Diverged.reason_in(diverged[1]))
        return version + 1

    def digests(self, version: int) -> Digests | None:
        """See :class:`~edgefl.training.job.Learner`."""
        return self._recording.digests.get(version)

    def feedback(self, job: JobId) -> Feedback:
        """See :class:`~edgefl.training.job.Learner`."""
        return self._recording.feedback[job.client, job.dispatch]

    def evaluate(self, version: int) -> Evaluation:
        """See :class:`~edgefl.training.job.Learner`.

        Raises:
            UserError: the finished run did not evaluate this model.
        """
        if version not in self._recording.evaluations:
            raise self._refusal(version, "the finished run did not evaluate this round's model")
        return self._recording.evaluations[version]

    def _check(self, key: tuple[int, int], round: int) -> None:
        """Whether a job and all those that its client's state comes from are what was trained."""
        while key not in self._same:
            job, known = self._submitted[key], self._recording.jobs.get(key)
            previous = None if job.previous is None else job.previous.dispatch
            if (
                known is None
                or (known.round, known.alpha, known.steps or job.steps) != (job.round, job.alpha, job.steps)
                or (self._stateful and known.previous != previous)
            ):
                raise self._refusal(round, f"client {key[0]} would train otherwise than it did")
            self._same.add(key)
            if not self._stateful or previous is None:
                return
            key = (key[0], previous)

    def _refusal(self, round: int, what: str) -> UserError:
        return UserError(
            f"{what}; time decides there what is trained, so the run cannot be replayed: simulate it instead",
            field=f"{self._method}, round {round + 1}",
        )
