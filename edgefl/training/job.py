"""Training jobs, and the learner to which the simulation submits them; without PyTorch.

A job is a value that contains all inputs, and its result is a pure function of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


class JobId(NamedTuple):
    """Identifies a job by method, seed, client and index of the client's job (``dispatch``, from 0).

    The random key of a job does not include the method, so all methods have the same batches and draws.
    """

    method: str
    seed: int
    client: int
    dispatch: int


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """One client's local training."""

    id: JobId
    version: int  # the server model that the client received (number of aggregations before it)
    round: int  # the round that sets the learning rate η_t and random draws
    alpha: int  # number of the last blocks that were received; M for the whole model
    steps: int  # local steps H_k
    # the client's last job, whose state this one continues from; None for a first job or a stateless method
    previous: JobId | None = None
    # the client's capacity level, which decides the part of the model that it trains; see SubModels. 0 for methods
    # without levels
    level: int = 0
    # the server model that the client was broadcast after its last job, whose blocks replace the client's own; None if
    # there was no broadcast
    front: int | None = None

    @property
    def place(self) -> tuple[int, int, int]:
        """Its round, client and number, as in the log."""
        return self.round, self.id.client, self.id.dispatch


class Feedback(NamedTuple):
    """Numbers that training returns to the simulation, exact float64."""

    loss: float  # mean loss of the task on the local path over the last local epoch (GMBS's ζ_L)
    first_loss: float  # the same over the first local epoch
    distance: float  # squared L2 distance between the returned local model and the new aggregate (GMBS's d_k)
    drift: float  # squared L2 distance between the server model and the model the client started from (FedBR's β²)


class Evaluation(NamedTuple):
    """The task's metric, such as the accuracy, and the mean loss of one model version on the evaluation split.

    ``ensemble`` is the metric of the temporal ensemble up to that version, NaN if there is none. ``model`` is the
    digest of the model after its evaluation, empty if there is none. Of peers with models of their own, metric and loss
    are their means, followed by the worst and the best one's metric, that of the mean of the models, and the consensus
    distance; these are NaN with a server.
    """

    metric: float
    loss: float
    ensemble: float = nan
    model: str = ""
    worst: float = nan
    best: float = nan
    mean_model: float = nan
    consensus_distance: float = nan


class Digests(NamedTuple):
    """Digests of a model version's numbers.

    ``before`` is that of the previous version after all training from it; empty for version 0.
    """

    before: str
    model: str


@dataclass(frozen=True, slots=True)
class Mixing:
    """Weights of updates in an asynchronous aggregation, where updates may have started from older models."""

    factors: Mapping[JobId, float]  # the factor of each job's update, in addition to its share in the mean
    # deltas: an update is the client's change of the model that it was sent (FedBuff); models: it is the difference
    # between the client's and the latest model (FedAsync: θ ← (1-α) θ + α θ_k)
    of: Literal["deltas", "models"] = "deltas"


@dataclass(frozen=True, slots=True, eq=False)
class PeerMixing:
    """How peers average their models at the end of a round; see :func:`edgefl.training.peer_models.mix`."""

    weights: NDArray[np.float64]  # w_ij, the share of peer j's model in the next one of peer i [peers, peers]
    missing: tuple[tuple[int, int], ...] = ()  # messages (sender, receiver) that did not arrive; weights are without
    gradient_after: bool = False  # models are averaged as they were before training, and its change is added
    push_sum: bool = False


class Learner(Protocol):
    """The interface between the simulation and training: the simulation holds ids, never tensors.

    A job need not be trained until a number or a model is needed; then all pending jobs are trained together.
    """

    def submit(self, job: TrainingJob) -> None:
        """Register a job that has started in the simulation; its result is a future."""

    def received(self, client: int, version: int) -> None:
        """A client has received the latest version without a job; its next job may continue from it."""

    def discard(self, job: JobId) -> None:
        """The job is late or dropped; it is trained only if its client state is read."""

    def aggregate(self, version: int, jobs: list[JobId], round: int, mixing: Mixing | PeerMixing | None = None) -> int:
        """Train the required jobs, compute the next model from the deltas, and return its version (``version + 1``).

        ``jobs`` are those whose results arrived, in any order; without any, the model does not change. A job may have
        started from any version that was the latest at its submission. ``round`` sets the rate that a server update may
        read. Without ``mixing``, every delta has full weight.
        """

    def digests(self, version: int) -> Digests | None:
        """Digests of the latest version and its predecessor; ``None`` without models or without digests."""

    def feedback(self, job: JobId) -> Feedback:
        """The numbers of a job in its client's last aggregation; ``distance`` is the distance to its aggregate."""

    def evaluate(self, version: int) -> Evaluation:
        """The task's metric and loss of a model version."""

    def local_losses(self, version: int, clients: Sequence[int], images: int | None) -> list[float]:
        """The mean loss of the latest version on each client's own training images, or on a random draw of them."""


class NeutralLearner:
    """Implements the learner interface without a model; it has no state, so memory use does not grow.

    All losses are 0, so rules that compare them find no difference; distances are 1, so products with them keep the
    other factor. Accuracies are unknown, not zero.

    >>> NeutralLearner().evaluate(5).metric
    nan
    """

    def submit(self, job: TrainingJob) -> None: ...

    def received(self, client: int, version: int) -> None: ...

    def discard(self, job: JobId) -> None: ...

    def aggregate(self, version: int, jobs: list[JobId], round: int, mixing: Mixing | PeerMixing | None = None) -> int:
        return version + 1

    def digests(self, version: int) -> Digests | None:
        """There are no models."""

    def feedback(self, job: JobId) -> Feedback:
        return Feedback(loss=0.0, first_loss=0.0, distance=1.0, drift=0.0)

    def local_losses(self, version: int, clients: Sequence[int], images: int | None) -> list[float]:
        return [0.0] * len(clients)

    def evaluate(self, version: int) -> Evaluation:
        return Evaluation(metric=nan, loss=nan)
