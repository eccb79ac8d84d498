"""Local training and evaluation by copies of the process."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from edgefl.learning.engine.base import Arrived, JobData, JobResult, JobTask, unnoticed
from edgefl.learning.engine.board import Board, Place
from edgefl.learning.engine.crew import Crew, slots
from edgefl.learning.engine.evaluation import BatchScore, evaluate_batch
from edgefl.learning.engine.local_training import train_job
from edgefl.learning.engine.parcels import (
    Packed,
    as_result,
    packed,
    tensors_of,
    tensors_of_result,
    unpacked,
    with_tensors,
    without_tensors,
)
from edgefl.learning.engine.process_copy import CrewLost, pickled
from edgefl.learning.engine.threads import one_core_each
from edgefl.learning.models.block_model import BlockModel
from edgefl.learning.precision import Precision

_VECTORS = 8
"""Vectors of a model's size that a board holds; what is more travels with the message."""

_PLAIN: dict[str, Any] = {"seed": 0, "client": 0, "round": 0, "dispatch": 0, "lr": 0.0, "steps": 0, "alpha": 0}
"""The numbers in which the jobs of a method differ, all of them zero."""

_CPU = torch.device("cpu")

Sent = Place | Packed
"""A tensor on its way: where it lies on the board, or itself."""


class _Slot(NamedTuple):
    """Where a job's own tensors lie on their way there, and on their way back."""

    inbox: Board
    outbox: Board


class _Job(NamedTuple):
    """A job on its way: the task without its tensors; these as others read them as well, or its own.

    Of the task, what the jobs of a method share is pickled once for all of them, because that takes a while.
    """

    slot: int
    method: bytes
    plain: Mapping[str, Any]
    common: Mapping[str, Sent]
    own: Mapping[str, Sent]


class _Batches(NamedTuple):
    """Batches to evaluate on the way: the weights, which of the evaluation split's batches, and the mode."""

    vector: Sent
    numbers: range
    mode: Mapping[str, Any]


class _Trained(NamedTuple):
    """A job's result on its way: its tensors by name, and its batch sizes."""

    tensors: Mapping[str, Sent]
    batch_sizes: tuple[int, ...]


class _Score(NamedTuple):
    """A batch's score on its way: right answers, summed cross-entropy, and images."""

    right: int
    cross_entropy: float
    images: int


class TrainingCrew:
    """Some copies of the process, each of which does one thing at a time with one intra-op thread.

    Weights are left in memory that the process shares with its copies: on one board what several jobs read, on another
    the model that is evaluated, and on two for each slot, what a job alone reads and what it comes to.

    Args:
        size: how many.
        model: the skeleton that jobs are called with; each copy has its own.
        data: where batches come from; the copies share its memory.
        precision: of a local step's products.

    Raises:
        CrewLost: the process cannot be copied, or has no memory to share.
    """

    def __init__(self, size: int, model: BlockModel, data: JobData, precision: Precision) -> None:
        room = _VECTORS * (model.layout.size * 4 + 4096)
        try:
            self._common, self._evaluated = Board(room), Board(room)
            self._slots = [_Slot(Board(room), Board(room)) for _ in range(slots(size))]
        except OSError as error:
            raise CrewLost(f"there is no memory to share with copies: {error}") from None
        self._known: tuple[tuple[object, ...], bytes] | None = None
        worker = _Worker(model, data, precision, self._common, self._evaluated, self._slots)
        self._crew = Crew(size, worker.serve)

    def train(
        self,
        tasks: Sequence[JobTask],
        order: Sequence[int],
        patience: float | None = None,
        arrived: Arrived = unnoticed,
    ) -> list[JobResult]:
        """Train all jobs, begun in this ``order``.

        Args:
            tasks: the jobs.
            order: their numbers.
            patience: seconds without any result after which a copy is taken for stuck.
            arrived: told of every result, while others are still under way.

        Raises:
            CrewLost: a copy ended or is stuck, or a method cannot travel.
            TrainingFault: a local step failed.
            Exception: what ``arrived`` raised.
        """
        tensors = {index: tensors_of(tasks[index]) for index in order}
        readers = Counter(id(tensor) for named in tensors.values() for tensor in named.values())
        self._common.clear()
        several = {id(each): each for named in tensors.values() for each in named.values() if readers[id(each)] > 1}
        common = {number: _sent(tensor, self._common) for number, tensor in several.items()}

        def taken(index: int, answer: _Trained, slot: int) -> JobResult:
            result = self._result(answer, slot)
            arrived(index, result)
            return result

        answers: dict[int, JobResult] = self._crew.answers(
            order,
            lambda index, slot: self._job(tasks[index], tensors[index], slot, common=common),
            taken,
            patience,
            alike=len({task.steps for task in tasks}) == 1,
        )
        return [answers[index] for index in range(len(tasks))]

    def evaluate(
        self, vector: Tensor, batches: int, mode: Mapping[str, Any], patience: float | None = None
    ) -> list[BatchScore]:
        """The scores of a model on the batches of the evaluation split, in their order.

        Args:
            vector: the model ``[size]``.
            batches: how many there are.
            mode: as for ``evaluate_batch``.
            patience: as for :meth:`train`; a copy that training did not need yet may turn out to be stuck here.

        Raises:
            CrewLost: a copy ended, or is stuck.
        """
        self._evaluated.clear()
        sent, shares = _sent(vector, self._evaluated), _cut(batches, self._crew.size)
        answers = self._crew.answers(
            range(len(shares)), lambda share, _: _Batches(sent, shares[share], mode), patience=patience
        )
        return [
            BatchScore(torch.tensor(right), torch.tensor(cross_entropy, dtype=torch.float64), images)
            for share in range(len(shares))
            for right, cross_entropy, images in answers[share]
        ]

    def dismiss(self) -> None:
        """End the copies; the crew is not used again."""
        self._crew.dismiss()

    def _job(
        self,
        task: JobTask,
        tensors: Mapping[str, Tensor],
        slot: int,
        *,
        common: Mapping[int, Sent] = MappingProxyType({}),
    ) -> _Job:
        """A job's request; ``common`` says by ``id`` which tensors lie on that board already."""
        inbox = self._slots[slot].inbox
        inbox.clear()
        alone = {id(each): each for each in tensors.values() if id(each) not in common}
        own = {number: _sent(each, inbox) for number, each in alone.items()}

        def placed(held: Mapping[int, Sent]) -> dict[str, Sent]:
            return {name: held[id(each)] for name, each in tensors.items() if id(each) in held}

        plain = {name: getattr(task, name) for name in _PLAIN}
        return _Job(slot, self._method(task), plain, placed(common), placed(own))

    def _method(self, task: JobTask) -> bytes:
        parts = task.method, task.objective, task.rule, task.options
        if self._known is None or any(one is not other for one, other in zip(self._known[0], parts, strict=True)):
            self._known = parts, pickled(replace(without_tensors(task), **_PLAIN))
        return self._known[1]

    def _result(self, answer: _Trained, slot: int) -> JobResult:
        outbox = self._slots[slot].outbox
        return as_result(
            {name: _found(each, outbox).clone() for name, each in answer.tensors.items()}, answer.batch_sizes
        )


class _Worker:
    """What a copy does."""

    def __init__(  # noqa: PLR0917  (all of what the crew has)
        self,
        model: BlockModel,
        data: JobData,
        precision: Precision,
        common: Board,
        evaluated: Board,
        slots: Sequence[_Slot],
    ) -> None:
        self._model = model
        self._data = data
        self._precision = precision
        self._common = common
        self._evaluated = evaluated
        self._slots = slots
        self._methods: dict[bytes, JobTask] = {}

    def serve(self, request: Any) -> _Trained | list[_Score]:
        """Train one job, or evaluate some batches, exactly as the sequential engine does."""
        with one_core_each():
            return self._train(request) if isinstance(request, _Job) else self._evaluate(request)

    def _train(self, job: _Job) -> _Trained:
        inbox, outbox = self._slots[job.slot]
        tensors: dict[str, Tensor] = {}
        for board, held in ((self._common, job.common), (inbox, job.own)):
            tensors |= {name: _found(each, board) for name, each in held.items()}
        if job.method not in self._methods:
            try:
                self._methods = {job.method: pickle.loads(job.method)}
            except Exception as error:
                raise CrewLost(f"a method cannot be read: {type(error).__name__}: {error}") from error
        task = with_tensors(replace(self._methods[job.method], **job.plain), tensors)
        result = train_job(task, self._model, self._data, precision=self._precision)
        outbox.clear()
        made = {name: _sent(tensor, outbox) for name, tensor in tensors_of_result(result).items()}
        return _Trained(made, result.batch_sizes)

    def _evaluate(self, batches: _Batches) -> list[_Score]:
        vector = _found(batches.vector, self._evaluated)
        places = self._data.evaluation()
        scores = [
            evaluate_batch(vector, places[number], self._model, self._data, batches.mode) for number in batches.numbers
        ]
        return [_Score(int(score.right), float(score.cross_entropy), score.images) for score in scores]


def _sent(tensor: Tensor, board: Board) -> Sent:
    return board.put(tensor) or packed(tensor)


def _found(sent: Sent, board: Board) -> Tensor:
    return board.at(sent) if isinstance(sent, Place) else unpacked(sent, _CPU)


def _cut(batches: int, parts: int) -> list[range]:
    """The numbers of so many batches in at most that many runs of nearly equal length."""
    size = -(-batches // parts)
    return [range(start, min(start + size, batches)) for start in range(0, batches, max(1, size))]
