"""The door of the training engine: resolved jobs go in, trained weights and losses come out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from edgefl.learning.job import Evaluation
from edgefl.learning.objectives.base import Batch, Objective
from edgefl.learning.rules.base import LocalOptions, LocalRule


@dataclass(frozen=True, slots=True, eq=False)
class JobTask:
    """A training job with everything resolved: plain tensors and plain values, nothing to look up.

    Attributes:
        method: the method's label, for messages.
        seed: the run's seed; with ``client`` and ``dispatch`` the key of every random draw of the job.
        client: whose data is trained on.
        round: for messages; ``lr`` says what it decides.
        dispatch: the how-manieth job of the client.
        objective, rule, options: the parts of a local step.
        lr: η_t of the round.
        steps: local steps H_k.
        alpha: how many of the last blocks were received; M when the model came whole.
        start: the weights before the first step ``[size]``.
        frozen: frozen copies ``[size]`` by name.
        vectors: what the objective or the rule reads ``[parameter_count]``, by name.
        facts: what the objective reads of the client's data, by name.
    """

    method: str
    seed: int
    client: int
    round: int
    dispatch: int
    objective: Objective
    rule: LocalRule
    options: LocalOptions
    lr: float
    steps: int
    alpha: int
    start: Tensor
    frozen: Mapping[str, Tensor] = field(default_factory=dict)
    vectors: Mapping[str, Tensor] = field(default_factory=dict)
    facts: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class JobResult:
    """What a job came to.

    Attributes:
        final: the weights after the last step ``[size]``.
        cross_entropies: mean cross-entropy of the local path on each step's batch ``[steps]``.
        batch_sizes: images in each step's batch.
        kept: what the rule's memory leaves to the client's state ``[parameter_count]``, by name.
    """

    final: Tensor
    cross_entropies: Tensor
    batch_sizes: tuple[int, ...]
    kept: Mapping[str, Tensor] = field(default_factory=dict)


class JobData(Protocol):
    """What training reads of a data set that is spread over clients; safe to read from several threads at once."""

    @property
    def clients(self) -> int:
        """N, the number of clients."""

    def samples(self, client: int) -> int:
        """n_k, the client's training images."""

    def facts(self, client: int) -> Mapping[str, Tensor]:
        """What an objective may know of the client's data: ``label_counts`` ``[classes]``, ``relative_size``."""

    def batches(self, task: JobTask) -> Iterable[Batch]:
        """The job's ``task.steps`` minibatches on the training device; the same ones for the same key, always."""

    def side_by_side(self, tasks: Sequence[JobTask]) -> Iterable[Batch] | None:
        """The minibatches of several jobs, step by step as ``[jobs, batch, ...]``, with the numbers of :meth:`batches`.

        ``None`` where the jobs do not take as many steps on as many images each, or the data cannot do it.
        """

    def evaluation(self) -> Sequence[slice]:
        """The evaluation split in consecutive batches of a fixed size."""

    def evaluation_batch(self, place: slice) -> Batch:
        """One of them on the training device, without augmentation."""


Arrived = Callable[[int, JobResult], None]
"""Told that the job at a place among those that are trained has come to a result."""


def unnoticed(place: int, result: JobResult) -> None:
    """Nobody is told."""


class Engine(Protocol):
    """How jobs become results. Every engine gives every job the result that :func:`train_job` gives it alone."""

    def train(self, tasks: Sequence[JobTask], arrived: Arrived = unnoticed) -> list[JobResult]:
        """Train all jobs; the results come in the order of the tasks, whatever ran first.

        Args:
            tasks: the jobs.
            arrived: told of every result, in the calling thread, in any order; where it can be, while other jobs are
                still under way. Of a job that had to be trained again, it is told again.

        Raises:
            TrainingFault: a local step failed; it names method, client, round and step.
            Exception: what ``arrived`` raised.
        """

    def evaluate(self, vector: Tensor, mode: Mapping[str, Any]) -> Evaluation:
        """Accuracy and mean cross-entropy of the model ``vector`` ``[size]`` on the evaluation split.

        ``mode`` says how the evaluation differs from a plain one; see ``Objective.evaluation_mode``.
        """

    def close(self) -> None:
        """Let go of workers and memory; the engine is not used again."""


class Around:
    """An engine around another, which does whatever a subclass does not do otherwise.

    Args:
        engine: the other one.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def train(self, tasks: Sequence[JobTask], arrived: Arrived = unnoticed) -> list[JobResult]:
        """Train all jobs."""
        return self._engine.train(tasks, arrived)

    def evaluate(self, vector: Tensor, mode: Mapping[str, Any]) -> Evaluation:
        """Accuracy and mean cross-entropy on the evaluation split."""
        return self._engine.evaluate(vector, mode)

    def close(self) -> None:
        """Let go of the engine's workers and memory."""
        self._engine.close()


def told(results: Sequence[JobResult], arrived: Arrived) -> list[JobResult]:
    """The results, once ``arrived`` was told of each."""
    for place, result in enumerate(results):
        arrived(place, result)
    return list(results)
