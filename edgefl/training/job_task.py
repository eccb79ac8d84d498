"""A training job with all its inputs, and its result, as the engines get and return them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.local_step import LocalRule
from edgefl.methods.parts.objective import Objective


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
