"""What clients keep between their jobs, as chains of futures: a state is the outcome of a job, trained or not yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor

from edgefl.learning.job import JobId, TrainingJob

State = Mapping[str, Tensor]
"""A client's vectors by name, as ``ClientState.after`` returned them."""


class ClientStates:
    """The states that a later job may still build on, and no others.

    A client's next job builds on its last one or, where the client gave that one up, on the one before. Once the last
    one is aggregated it was not given up. So at most two states a client are kept, however many rounds go by, beside
    those that a waiting job reads.

    Args:
        states, last_jobs: what :meth:`kept` and :meth:`last_jobs` gave, to go on from there.
    """

    def __init__(
        self, states: Mapping[JobId, State] | None = None, last_jobs: Mapping[int, tuple[JobId, ...]] | None = None
    ) -> None:
        self._states: dict[JobId, State] = dict(states or {})
        self._tips: dict[int, tuple[JobId, ...]] = dict(last_jobs or {})

    def submitted(self, job: TrainingJob) -> None:
        """``job`` is its client's last one from now on."""
        self._tips[job.id.client] = (job.id,) if job.previous is None else (job.id, job.previous)

    def aggregated(self, job: JobId) -> None:
        """The server used the job's result, so its client did not give it up."""
        if self._tips.get(job.client, (None,))[0] == job:
            self._tips[job.client] = (job,)

    def put(self, job: JobId, state: State) -> None:
        """The client's state after ``job``."""
        self._states[job] = state

    def __len__(self) -> int:
        return len(self._states)

    def __getitem__(self, job: JobId) -> State:
        try:
            return self._states[job]
        except KeyError:
            raise KeyError(f"no client state is kept of {job}: the client's later jobs did not build on it") from None

    def kept(self) -> Mapping[JobId, State]:
        """Every state that is kept, by the job that left it."""
        return self._states

    def last_jobs(self) -> Mapping[int, tuple[JobId, ...]]:
        """For every client the jobs, trained or not, that its next one may build on."""
        return self._tips

    def tips(self) -> set[JobId]:
        """The jobs, trained or not, that a client's next job may build on."""
        return {job for tips in self._tips.values() for job in tips}

    def keep(self, waiting: Iterable[TrainingJob]) -> None:
        """Forget every state that neither a ``waiting`` job nor a job to come can read."""
        needed = self.tips() | {job.previous for job in waiting if job.previous is not None}
        for job in self._states.keys() - needed:
            del self._states[job]
