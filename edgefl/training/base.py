"""The forms of a job in training, and the interface of the engines that train it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.local_step import LocalRule
from edgefl.methods.parts.objective import Batch, Objective
from edgefl.models.block_model import BlockModel
from edgefl.registry import Registry
from edgefl.torch_settings import Precision
from edgefl.training.job import Evaluation


@dataclass(frozen=True, slots=True, eq=False)
class JobTask:
    """A training job with all inputs resolved to plain tensors and values."""

    method: str  # the method's label, for messages
    seed: int  # the run's seed; together with client and dispatch the key of every random draw of the job
    client: int
    round: int  # used in messages only; its effect on the learning rate is already in lr
    dispatch: int  # index of the client's job, from 0
    objective: Objective
    rule: LocalRule
    options: LocalOptions
    lr: float  # η_t of the round
    steps: int  # local steps H_k
    alpha: int  # number of the last blocks that were received; M for the whole model
    start: Tensor  # the weights before the first step [size]
    frozen: Mapping[str, Tensor] = field(default_factory=dict)  # frozen copies [size] by name
    # vectors [parameter_count] that the objective or the rule reads, by name
    vectors: Mapping[str, Tensor] = field(default_factory=dict)
    # facts about the client's data that the objective reads, by name
    facts: Mapping[str, Tensor] = field(default_factory=dict)
    rates: tuple[float, ...] = ()  # η of each local step, if they differ
    level: int = 0  # the capacity level whose part of the model is trained, which start is a vector of


@dataclass(frozen=True, slots=True, eq=False)
class JobResult:
    """The result of a job."""

    final: Tensor  # the weights after the last step [size]
    # the task's mean loss of the local path on each step's batch [steps], a cross-entropy for classes
    cross_entropies: Tensor
    batch_sizes: tuple[int, ...]  # images in each step's batch
    # vectors [parameter_count] that the rule's local optimizer state adds to the client's state, by name
    kept: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The result of a trained job at the server."""

    client: int
    final: Tensor  # the returned local model θ_k [size], as received
    version: int  # the model version v_k that the client was sent, and η of its round
    rate: float
    samples: int  # n_k, the number of the client's training images
    steps: int  # H_k, its local steps
    loss: float  # mean cross-entropy over the last local epoch
    first_loss: float  # the same over the first
    # squared distance between that version and the model that the client started from, without its local part
    drift: float
    delta: Tensor  # θ_k - θ_{v_k} [size], as received
    # other received vectors, by the part's name; see Arrival.uploads
    others: Mapping[str, Tensor] = field(default_factory=dict)
    # the broadcasts of the version, as the client received them
    received: Mapping[str, Tensor] = field(default_factory=dict)
    # the capacity level, or the number of the last blocks if only these are trained, and the round: the part of the
    # model that it trained; the other numbers are those of the version
    part: tuple[int, int] = (0, 0)


class EvaluationData(Protocol):
    """Samples on which a model is evaluated."""

    def evaluation(self) -> Sequence[slice]:
        """The samples as consecutive batches of a fixed size."""

    def evaluation_batch(self, place: slice) -> Batch:
        """One of the batches on the training device, without augmentation."""


class JobData(EvaluationData, Protocol):
    """A data set divided among clients, for training, with its evaluation split; reading is thread-safe."""

    @property
    def clients(self) -> int:
        """N, the number of clients."""

    def together(self) -> Self:
        """The same data with one client, which has the training images of all."""

    def samples(self, client: int) -> int:
        """n_k, the number of the client's training images."""

    def facts(self, client: int) -> Mapping[str, Tensor]:
        """Facts about the client's data for the objective: ``label_counts`` ``[classes]``, ``relative_size``."""

    def batches(self, task: JobTask) -> Iterable[Batch]:
        """The job's ``task.steps`` minibatches on the training device; the job's key determines them."""

    def side_by_side(self, tasks: Sequence[JobTask]) -> Iterable[Batch] | None:
        """The minibatches of several jobs, step by step as ``[jobs, batch, ...]``; same values as :meth:`batches`.

        ``None`` if the jobs differ in their number of steps or images, or if the data does not support it.
        """

    def own(self, client: int, chosen: NDArray[np.int64] | None = None) -> EvaluationData:
        """The client's training samples, or those at some places of its shard, to evaluate a model on."""


class Engine(Protocol):
    """Trains jobs. Every engine returns for every job the result that :func:`train_job` returns for it alone."""

    def train(self, tasks: Sequence[JobTask]) -> list[JobResult]:
        """Train all jobs and return the results in the order of the tasks, independent of the order of execution.

        Raises:
            TrainingFault: a local step failed; the message names method, client, round and step.
        """

    def evaluate(self, vector: Tensor, mode: Mapping[str, Any]) -> Evaluation:
        """Return metric and mean loss of the model ``vector`` ``[size]`` on the evaluation split.

        ``mode`` states how the evaluation differs from a plain one; see ``Objective.evaluation_mode``.
        """

    def close(self) -> None:
        """Release workers and memory; the engine must not be used again."""


class EngineInputs(NamedTuple):
    """An engine is built from these."""

    model: BlockModel  # the skeleton that jobs are called with
    data: JobData
    device: torch.device
    workers: int | None = None  # number of concurrent jobs; None: the engine's own choice. It never changes a result
    precision: Precision = "float32"


EngineWrapper = Callable[[Engine, EngineInputs, int], Engine]
"""What takes the place of an engine, given what that one was built from, and the seed."""


@dataclass(frozen=True)
class EngineEntry:
    """An engine as its module in :mod:`edgefl.training.engines` registers it."""

    build: Callable[[EngineInputs], Engine]
    devices: tuple[str, ...] = ("cpu", "cuda")  # kinds of devices on which it runs
    alike: bool = True  # results are bit-identical to training each job alone
    elsewhere: bool = False  # it trains on other machines


ENGINES: Registry[EngineEntry] = Registry("engine", package="edgefl.training.engines")
