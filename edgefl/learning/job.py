"""A training job is a value: it says everything, and its result is a pure function of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import nan
from typing import Literal, NamedTuple, Protocol


class JobId(NamedTuple):
    """Who trains, for which run, and for the how-manieth time (``dispatch`` counts a client's jobs from 0).

    The random key of a job leaves the method out, so that all methods meet the same batches and draws.
    """

    method: str
    seed: int
    client: int
    dispatch: int


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """One client's local training.

    Attributes:
        id: see :class:`JobId`.
        version: the server model that the client received (number of aggregations before it).
        round: the round that sets the learning rate η_t and random draws.
        alpha: how many of the last blocks were received; M when the model came whole.
        steps: local steps H_k.
        previous: the client's last job, whose state this one builds on; ``None`` at first or for stateless methods.
    """

    id: JobId
    version: int
    round: int
    alpha: int
    steps: int
    previous: JobId | None = None


class Feedback(NamedTuple):
    """Numbers that training hands to the world, exact float64.

    Attributes:
        loss: mean cross-entropy of the local path over the last local epoch (GMBS's ζ_L).
        first_loss: the same over the first local epoch.
        distance: squared L2 distance between the returned local model and the new aggregate (GMBS's d_k).
        drift: squared L2 distance between the server model and the model the client started from (FedBR's β²).
    """

    loss: float
    first_loss: float
    distance: float
    drift: float


class Evaluation(NamedTuple):
    """Accuracy in [0, 1] and mean cross-entropy of one model version on the evaluation split.

    ``ensemble`` is the accuracy of the temporal ensemble up to that version, NaN where there is none; ``model`` the
    digest of the model after it was evaluated, empty where there is none.
    """

    accuracy: float
    loss: float
    ensemble: float = nan
    model: str = ""


class Digests(NamedTuple):
    """Digests of a model version's numbers.

    Attributes:
        before: of the version before it, after everything was trained from it that was to be; empty for version 0.
        model: of the version.
    """

    before: str
    model: str


@dataclass(frozen=True, slots=True)
class Mixing:
    """How updates count that may have begun from older models, in an asynchronous aggregation.

    Attributes:
        factors: what each job's update is multiplied by, beside its share in the mean.
        of: ``deltas``: an update is what the client changed in the model that it was sent (FedBuff);
            ``models``: it is the way from the latest model to the client's (FedAsync: θ ← (1-α) θ + α θ_k).
    """

    factors: Mapping[JobId, float]
    of: Literal["deltas", "models"] = "deltas"


class Learner(Protocol):
    """The door between the world and training: the world holds ids, never tensors.

    A job need not be trained before a number or a model is needed; then every job that waits is trained together.
    """

    def submit(self, job: TrainingJob) -> None:
        """A job has started in the world; it is a future from now on."""

    def discard(self, job: JobId) -> None:
        """The job's result will never be aggregated (late or dropped); trained only if its client state is read."""

    def aggregate(self, version: int, jobs: list[JobId], round: int, mixing: Mixing | None = None) -> int:
        """Train what is needed, turn the jobs' deltas into the next model, and return its version (``version + 1``).

        A job may have begun from any version that was the latest when it was submitted. Without ``mixing`` every delta
        counts wholly.
        """

    def digests(self, version: int) -> Digests | None:
        """What the latest version was made of, and is; ``None`` where there are no models, or no digests of them."""

    def feedback(self, job: JobId) -> Feedback:
        """The numbers of a job that was aggregated; ``distance`` is to the aggregate it went into."""

    def evaluate(self, version: int) -> Evaluation:
        """Accuracy and loss of a model version."""
