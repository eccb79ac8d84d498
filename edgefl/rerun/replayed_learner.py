"""A learner that returns the results of a finished run, as long as exactly the same training is requested."""

from __future__ import annotations

from edgefl.errors import UserError
from edgefl.experiment.recording import RecordedLearner, Recording
from edgefl.training.job import JobId, Mixing, TrainingJob


class TrainsDifferentlyError(UserError):
    """Under other conditions something else would be trained than in the finished run.

    Args:
        what: the difference.
        field: where it is.
    """

    def __init__(self, what: str, *, field: str) -> None:
        self.what = what
        message = f"{what}; so time affects what is trained, and the run cannot be replayed: simulate it instead"
        super().__init__(message, field=field)


class ReplayedLearner(RecordedLearner):
    """Answers from a recording; raises :class:`TrainsDifferentlyError` if something else would be trained.

    Args:
        recording: the finished run's training.
        method: the method's label.
        stateful: whether its clients keep a state, so that a job depends on the client's jobs before it.
    """

    def __init__(self, recording: Recording, method: str, *, stateful: bool) -> None:
        super().__init__(recording, method, self._not_recorded)
        self._stateful = stateful
        self._submitted: dict[tuple[int, int], TrainingJob] = {}
        self._same: set[tuple[int, int]] = set()

    def submit(self, job: TrainingJob) -> None:
        """Keep the job until it is aggregated."""
        self._submitted[job.id.client, job.id.dispatch] = job

    def aggregate(self, version: int, jobs: list[JobId], round: int, mixing: Mixing | None = None) -> int:
        """Check that these jobs, from the models that they began with, were aggregated in the finished run."""
        known = self._recording.aggregated.get(round)
        here = sorted((id.client, id.dispatch) for id in jobs)
        diverged = self._recording.diverged
        if known is None and not (diverged and diverged[0] == round):
            reason = self._recording.reason
            raise self._refusal(round, f"the finished run ended by '{reason}' before this round")
        if known is not None and sorted(known) != here:
            clients = ", ".join(str(client) for client, _ in sorted(known)) or "none"
            others = ", ".join(str(client) for client, _ in here) or "none"
            raise self._refusal(round, f"clients {clients} were aggregated, here it would be {others}")
        for job in here:
            self._check(job, round)
        return super().aggregate(version, jobs, round, mixing)

    def _check(self, key: tuple[int, int], round: int) -> None:
        """Check that a job, and all jobs that its client's state depends on, were trained in the finished run."""
        while key not in self._same:
            job, known = self._submitted[key], self._recording.jobs.get(key)
            previous = None if job.previous is None else job.previous.dispatch
            if (
                known is None
                or (known.round, known.alpha, known.level) != (job.round, job.alpha, job.level)
                or (known.steps or job.steps) != job.steps
                or known.front != job.front
                or (self._stateful and known.previous != previous)
            ):
                raise self._refusal(round, f"client {key[0]} would train differently than in the finished run")
            self._same.add(key)
            if not self._stateful or previous is None:
                return
            key = (key[0], previous)

    def _not_recorded(self, name: str) -> TrainsDifferentlyError:
        return TrainsDifferentlyError(f"the finished run has no {name}", field=self._method)

    def _refusal(self, round: int, what: str) -> TrainsDifferentlyError:
        return TrainsDifferentlyError(what, field=f"{self._method}, round {round + 1}")
