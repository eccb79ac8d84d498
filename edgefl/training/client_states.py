"""Client states between jobs, as chains of futures: a state is the outcome of a job, which may not be trained yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor

from edgefl.training.job import JobId, TrainingJob

State = Mapping[str, Tensor]
"""A client's vectors by name, as ``ClientState.after`` returned them."""


class ClientStates:
    """The client states that a later job may still read.

    A client's next job continues from its last job or, if the client abandoned that one, from the one before. An
    aggregated job was not abandoned. So at most two states per client are kept, in addition to the states that pending
    jobs read.
    """

    def __init__(
        self, states: Mapping[JobId, State] | None = None, last_jobs: Mapping[int, tuple[JobId, ...]] | None = None
    ) -> None:
        self._states: dict[JobId, State] = dict(states or {})
        self._tips: dict[int, tuple[JobId, ...]] = dict(last_jobs or {})

    def submitted(self, job: TrainingJob) -> None:
        self._tips[job.id.client] = (job.id,) if job.previous is None else (job.id, job.previous)

    def aggregated(self, job: JobId) -> None:
        """The server used the job's result, so the client did not abandon it."""
        if self._tips.get(job.client, (None,))[0] == job:
            self._tips[job.client] = (job,)

    def put(self, job: JobId, state: State) -> None:
        self._states[job] = state

    def __len__(self) -> int:
        return len(self._states)

    def __getitem__(self, job: JobId) -> State:
        try:
            return self._states[job]
        except KeyError:
            raise KeyError(f"no client state is kept for {job}: later jobs of the client do not depend on it") from None

    def kept(self) -> Mapping[JobId, State]:
        """All kept states, by the job that produced them."""
        return self._states

    def last_jobs(self) -> Mapping[int, tuple[JobId, ...]]:
        """For every client, the jobs, trained or not, that its next job may continue from."""
        return self._tips

    def tips(self) -> set[JobId]:
        """The jobs, trained or not, that any client's next job may continue from."""
        return {job for tips in self._tips.values() for job in tips}

    def keep(self, waiting: Iterable[TrainingJob]) -> None:
        """Delete every state that neither a ``waiting`` job nor a future job can read."""
        needed = self.tips() | {job.previous for job in waiting if job.previous is not None}
        for job in self._states.keys() - needed:
            del self._states[job]
