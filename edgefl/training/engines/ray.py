"""The engine for several machines: jobs are distributed over a Ray cluster's CPUs or GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from edgefl.methods.parts.local_step import Precision
from edgefl.models.block_model import BlockModel
from edgefl.training.base import ENGINES, EngineEntry, EngineInputs, JobData, JobResult, JobTask
from edgefl.training.evaluation import total
from edgefl.training.faults import TrainingFault
from edgefl.training.job import Evaluation
from edgefl.training.ray.cluster import RETRIES, connected, needs
from edgefl.training.ray.worker import SharedInputs, packed, score_batches, train_sent, unpacked
from edgefl.training.serialization import joined, split

BATCHES_A_PIECE = 16
"""Number of evaluation batches per task, independent of the cluster's size."""


class WorkersLost(Exception):  # noqa: N818  (what happened to them)
    """A task was retried on several workers, and all of them were lost."""


class RayEngine:
    """Trains each job by itself on one CPU, with one intra-op thread, or on one GPU of a Ray cluster.

    A job runs the sequential engine's code and is never split or merged, so on processors of one kind the results are
    bit-identical to the sequential engine's, for any number of workers. Model and data are placed in the cluster's
    object store once; a worker unpacks them at its first job. A tensor that several jobs read, such as the server's
    model, is sent once. If a worker or its machine is lost, Ray reruns its jobs on other workers. After a fault the
    running jobs are not cancelled, see :func:`~edgefl.training.ray.cluster.connected`.

    ``device`` is the kind of the cluster's processors to use, and the device of the results.

    Raises:
        UserError: Ray is not installed, or its cluster cannot be reached or has no such processor.
    """

    def __init__(
        self, model: BlockModel, data: JobData, device: torch.device, precision: Precision = "float32"
    ) -> None:
        self._ray = connected()
        self._data = data
        self._device = device
        asked = needs(self._ray, device)
        self._train = self._ray.remote(**asked)(train_sent)
        self._score = self._ray.remote(**asked)(score_batches)
        self._task = model.task
        self._place = [self._ray.put(SharedInputs(model, data, device, precision))]

    def train(self, tasks: Sequence[JobTask]) -> list[JobResult]:
        sent = self._sent(tasks)
        order = sorted(range(len(tasks)), key=lambda index: -tasks[index].steps)
        begun = {index: self._train.remote(self._place, *sent[index]) for index in order}
        return [self._fetched(begun[index], task) for index, task in enumerate(tasks)]

    def evaluate(self, vector: Tensor, mode: Mapping[str, Any]) -> Evaluation:
        """Metric and mean loss on the evaluation split; batches are summed in their order.

        Raises:
            WorkersLost: all workers that a task was given to were lost.
            Exception: a batch raised it on its worker.
        """
        batches = self._data.evaluation()
        pieces = [batches[start : start + BATCHES_A_PIECE] for start in range(0, len(batches), BATCHES_A_PIECE)]
        sent = self._ray.put(packed(vector))
        begun = [self._score.remote(self._place, sent, piece, dict(mode)) for piece in pieces]
        return total([score for reference in begun for score in self._answer(reference)], self._task)

    def close(self) -> None:
        """Delete model and data from the cluster; the connection stays open for the next engine."""
        self._place = []

    def _sent(self, tasks: Sequence[JobTask]) -> list[tuple[JobTask, dict[str, Any]]]:
        parts = [split(task) for task in tasks]
        readers = Counter(id(tensor) for _, tensors in parts for tensor in tensors.values())
        placed: dict[int, Any] = {}

        def sent(tensor: Tensor) -> Any:
            if readers[id(tensor)] == 1:
                return packed(tensor)
            if id(tensor) not in placed:
                placed[id(tensor)] = self._ray.put(packed(tensor))
            return placed[id(tensor)]

        return [(bare, {name: sent(tensor) for name, tensor in tensors.items()}) for bare, tensors in parts]

    def _fetched(self, reference: Any, task: JobTask) -> JobResult:
        try:
            bare, arrays = self._answer(reference)
        except TrainingFault:
            raise
        except Exception as error:
            reason = str(error) if isinstance(error, WorkersLost) else f"{type(error).__name__}: {error}"
            raise TrainingFault(task.method, task.client, task.round, 0, reason) from error
        result: JobResult = joined(bare, {name: unpacked(array, self._device) for name, array in arrays.items()})
        return result

    def _answer(self, reference: Any) -> Any:
        """Its exception is raised unchanged, without Ray's wrapper."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except errors.RayTaskError as error:
            raise error.cause from None
        except errors.RayError as error:
            raise WorkersLost(f"its worker was lost {RETRIES + 1} times ({type(error).__name__})") from error


def build(given: EngineInputs) -> RayEngine:
    """The engine."""
    return RayEngine(given.model, given.data, given.device, given.precision)


ENGINES.register("ray")(EngineEntry(build, elsewhere=True))
