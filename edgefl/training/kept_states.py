"""Client states between jobs, as chains of futures: a state is the outcome of a job, which may not be trained yet."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from pydantic import Field
from torch import Tensor

from edgefl.options import Component
from edgefl.training.job import JobId, TrainingJob
from edgefl.training.job_task import within

State = Mapping[str, Tensor]
"""A client's vectors by name, as ``ClientState.after`` returned them."""


@dataclass
class ClientStates:
    """The client states that a later job may still read.

    A client's next job continues from its last job or, if the client abandoned that one, from the one before. An
    aggregated job was not abandoned. So at most two states per client are kept, in addition to the states that pending
    jobs read.
    """

    kept: dict[JobId, State] = field(default_factory=dict)  # by the job that produced them
    # for every client, the jobs, trained or not, that its next job may continue from
    last_jobs: dict[int, tuple[JobId, ...]] = field(default_factory=dict)

    def submitted(self, job: TrainingJob) -> None:
        self.last_jobs[job.id.client] = (job.id,) if job.previous is None else (job.id, job.previous)

    def aggregated(self, job: JobId) -> None:
        """The server used the job's result, so the client did not abandon it."""
        if self.last_jobs.get(job.client, (None,))[0] == job:
            self.last_jobs[job.client] = (job,)

    def tips(self) -> set[JobId]:
        """The jobs, trained or not, that any client's next job may continue from."""
        return {job for jobs in self.last_jobs.values() for job in jobs}

    def keep(self, waiting: Iterable[TrainingJob]) -> None:
        """Delete every state that neither a ``waiting`` job nor a future job can read."""
        needed = self.tips() | {job.previous for job in waiting if job.previous is not None}
        for job in self.kept.keys() - needed:
            del self.kept[job]


class EnsembleSpec(Component):
    """A moving average of the global models, evaluated in addition to the newest one; it does not change training."""

    decay: float = Field(
        default=0.99, ge=0, lt=1, description="share d of the average in ē ← d ē + (1-d) θ; 0.99 looks back 100 rounds"
    )


class KeptModels:
    """The moving average of the global models and the local models ``[size]`` of the last round; each is optional.

    The average is ē_t = Σ_{s≤t} d^{t-s} θ_s / Σ_{s≤t} d^{t-s}: the weights sum to 1 from the first model on. Without
    the division, the first model would have the share d^t, which is most of the average in the first 1/(1-d) rounds.
    Buffers are averaged like parameters.

    >>> kept = KeptModels(EnsembleSpec(decay=0.5))
    >>> for number in (1.0, 4.0):
    ...     kept.aggregated(torch.tensor([number]), {})
    >>> kept.average
    tensor([3.])
    """

    def __init__(self, ensemble: EnsembleSpec | None = None, *, clients: bool = False) -> None:
        self._ensemble, self._clients = ensemble, clients
        self._weight = 0.0
        self.average: Tensor | None = None  # of all versions so far [size], if one is kept
        self.local: dict[int, Tensor] = {}

    def aggregated(self, model: Tensor, local: Mapping[int, Tensor]) -> None:
        if self._ensemble is not None:
            # With w the sum of weights, ē + (θ - ē)/w is the same average, and exact if the model does not change.
            self._weight = self._ensemble.decay * self._weight + 1.0
            before = self.average
            self.average = model.clone() if before is None else before + (model - before) / self._weight
        if self._clients and local:
            self.local = dict(local)

    def packed(self) -> dict[str, Tensor]:
        tensors = {f"client/{client}": model for client, model in self.local.items()}
        if self.average is None:
            return tensors
        return {"average": self.average, "weight": torch.tensor([self._weight], dtype=torch.float64), **tensors}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        self.average = tensors.get("average")
        self._weight = float(tensors["weight"]) if "weight" in tensors else 0.0
        self.local = {int(client): model for client, model in within(tensors, "client").items()}
