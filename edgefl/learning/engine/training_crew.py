"""Local training by copies of the process."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from edgefl.learning.engine.base import JobData, JobResult, JobTask
from edgefl.learning.engine.crew import Crew
from edgefl.learning.engine.local_training import train_job
from edgefl.learning.engine.parcels import (
    Packed,
    PackedResult,
    packed,
    packed_result,
    result_of,
    tensors_of,
    unpacked,
    with_tensors,
    without_tensors,
)
from edgefl.learning.engine.threads import one_core_each
from edgefl.learning.models.block_model import BlockModel
from edgefl.learning.precision import Precision

UNSENDABLE = (pickle.PicklingError, TypeError, AttributeError)
"""What pickling raises for a part of a method that was made up on the way, such as a class within a function."""

_CPU = torch.device("cpu")


class _Request(NamedTuple):
    """A job on its way.

    Attributes:
        call: counts calls; tensors of earlier ones are forgotten.
        task: the task without its tensors.
        named: by the place where it belongs, the number of each tensor.
        fresh: by number, the tensors that this worker was not sent in this call.
    """

    call: int
    task: JobTask
    named: Mapping[str, int]
    fresh: Mapping[int, Packed]


class TrainingCrew:
    """Some copies of the process, each of which trains one job at a time with one intra-op thread.

    Args:
        size: how many.
        model: the skeleton that jobs are called with; each copy has its own.
        data: where batches come from; the copies share its memory.
        precision: of a local step's products.
    """

    def __init__(self, size: int, model: BlockModel, data: JobData, precision: Precision) -> None:
        self._calls = 0
        self._crew = Crew(size, _Worker(model, data, precision).train)

    def train(self, tasks: Sequence[JobTask], order: Sequence[int], patience: float | None = None) -> list[JobResult]:
        """Train all jobs, begun in this ``order``; a tensor that several read is sent once to each worker.

        Args:
            tasks: the jobs.
            order: their numbers.
            patience: seconds without any result after which a copy is taken for stuck.

        Raises:
            CrewLost: a copy ended, or is stuck.
            TrainingFault: a local step failed.
        """
        self._calls += 1
        sent: list[set[int]] = [set() for _ in range(self._crew.size)]

        def request(index: int, worker: int) -> _Request:
            tensors = tensors_of(tasks[index])
            named = {name: id(tensor) for name, tensor in tensors.items()}
            fresh = {id(each): packed(each) for each in tensors.values() if id(each) not in sent[worker]}
            sent[worker] |= fresh.keys()
            return _Request(self._calls, without_tensors(tasks[index]), named, fresh)

        answers = self._crew.answers(order, request, patience)
        return [result_of(answers[index], _CPU) for index in range(len(tasks))]

    def dismiss(self) -> None:
        """End the copies; the crew is not used again."""
        self._crew.dismiss()


class _Worker:
    """What a copy does; it keeps the tensors of a call, several of whose jobs may read them."""

    def __init__(self, model: BlockModel, data: JobData, precision: Precision) -> None:
        self._model = model
        self._data = data
        self._precision = precision
        self._call = 0
        self._tensors: dict[int, Tensor] = {}

    def train(self, request: Any) -> PackedResult:
        """Train one job, exactly as the sequential engine does."""
        if request.call != self._call:
            self._call, self._tensors = request.call, {}
        self._tensors |= {number: unpacked(tensor, _CPU) for number, tensor in request.fresh.items()}
        task = with_tensors(request.task, {name: self._tensors[number] for name, number in request.named.items()})
        with one_core_each():
            return packed_result(train_job(task, self._model, self._data, precision=self._precision))
