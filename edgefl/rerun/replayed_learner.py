"""A learner that returns the results of a finished run, as long as exactly the same training is requested."""

from __future__ import annotations

from edgefl.experiment.recording import RecordedLearner, Recording
from edgefl.training.faults import NotTrained
from edgefl.training.job import JobId, Mixing, TrainingJob


class ReplayedLearner(RecordedLearner):
    """Answers from a recording; raises :class:`NotTrained` if something else would be trained, or more.

    If clients are ``stateful``, a job depends on the client's jobs before it.
    """

    def __init__(self, recording: Recording, method: str, *, stateful: bool) -> None:
        super().__init__(recording, method, lambda name: NotTrained(f"the finished run has no {name}"))
        self._stateful = stateful
        self._submitted: dict[tuple[int, int], TrainingJob] = {}
        self._same: set[tuple[int, int]] = set()

    def submit(self, job: TrainingJob) -> None:
        """Keep the job until it is aggregated."""
        self._submitted[job.id.client, job.id.dispatch] = job

    def aggregate(self, version: int, jobs: list[JobId], round: int, mixing: Mixing | None = None) -> int:
        """Check that these jobs, from the models that they began with, were aggregated in the finished run."""
        known, diverged = self._recording.aggregated.get(round), self._recording.diverged
        here = sorted((id.client, id.dispatch) for id in jobs)
        if known is None and not (diverged and diverged[0] == round):
            raise NotTrained(f"the finished run ended by '{self._recording.reason}' in round {round + 1}")
        if known is not None and sorted(known) != here:
            clients = ", ".join(str(client) for client, _ in sorted(known)) or "none"
            others = ", ".join(str(client) for client, _ in here) or "none"
            raise NotTrained(f"in round {round + 1} clients {clients} were aggregated, here it would be {others}")
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
                raise NotTrained(f"client {key[0]} would train differently in round {round + 1}")
            self._same.add(key)
            if not self._stateful or previous is None:
                return
            key = (key[0], previous)
