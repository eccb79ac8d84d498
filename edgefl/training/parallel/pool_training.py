"""Local training and evaluation by worker processes: sending jobs and receiving results."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import cloudpickle
from torch import Tensor

from edgefl.errors import EdgeflError
from edgefl.methods.parts.local_step import Precision
from edgefl.models.block_model import BlockModel
from edgefl.training.base import JobData, JobResult, JobTask
from edgefl.training.evaluation import BatchScore
from edgefl.training.parallel import pool_worker
from edgefl.training.parallel.pool_worker import Job, Sent, SharedInputs, Trained, Unreadable, received, sent
from edgefl.training.parallel.shared_buffer import Region, SharedBuffer, SharedObject
from edgefl.training.parallel.worker_pool import Call, PoolBroken, WorkerPool
from edgefl.training.parcels import as_result, tensors_of, without_tensors

_VECTORS = 8
"""Number of model-sized vectors that each region of the buffer holds; further ones are sent with the message."""

_PLAIN: dict[str, Any] = dict.fromkeys(("seed", "client", "round", "dispatch", "steps", "alpha", "level"), 0) | {
    "lr": 0.0
}
"""The fields in which the jobs of a method differ, all set to zero."""


class NotSendable(EdgeflError):  # noqa: N818  (what it is)
    """A part of a method, the model or the data cannot be pickled, or a worker process cannot read it."""


class PoolTraining:
    """Trains jobs in the worker processes of a pool.

    The data set and the model are shared once. Weights are sent in a shared-memory buffer. One region holds the weights
    that several jobs read or that are evaluated. Each running job has two more: one for the weights that it alone
    reads, and one for its result.

    Args:
        pool: the worker pool, which is ready.
        model: the skeleton that jobs are called with.
        data: the source of batches.
        precision: precision of a local step's products.

    Raises:
        NotSendable: the model or the data cannot be pickled.
        PoolBroken: the system has no shared memory available.
    """

    def __init__(self, pool: WorkerPool, model: BlockModel, data: JobData, precision: Precision) -> None:
        self._pool = pool
        room = _VECTORS * (model.layout.size * 4 + 4096)
        # One more is queued for the next free process, and one more has its result being read.
        self._slots = 2 * pool.size + 1
        try:
            self._model = _shared(model, "the model")
            self._data = _shared_data(data)
            self._buffer = SharedBuffer(room * (1 + 2 * self._slots))
        except OSError as error:
            raise PoolBroken(f"no shared memory is available for worker processes: {error}") from None
        self._common = Region(self._buffer, 0, room)
        self._inboxes = [Region(self._buffer, (1 + slot) * room, room) for slot in range(self._slots)]
        self._outboxes = [((1 + self._slots + slot) * room, room) for slot in range(self._slots)]
        self._precision = precision
        self._known: tuple[tuple[object, ...], bytes] | None = None

    @property
    def broken(self) -> bool:
        """Whether the pool is unusable."""
        return self._pool.broken

    def train(
        self,
        tasks: Sequence[JobTask],
        order: Sequence[int],
        patience: float | None = None,
    ) -> list[JobResult]:
        """Train all jobs, started in this ``order``.

        Args:
            tasks: the jobs.
            order: indices of the jobs.
            patience: seconds without any result after which a worker process is considered stuck.

        Raises:
            NotSendable: a method cannot be pickled, or a worker process cannot read it.
            PoolBroken: a worker process ended or is stuck.
            TrainingFault: a local step failed.
        """
        methods = [self._method(task) for task in tasks]
        tensors = [tensors_of(task) for task in tasks]
        readers = Counter(id(tensor) for named in tensors for tensor in named.values())
        several = {id(each): each for named in tensors for each in named.values() if readers[id(each)] > 1}
        self._common.clear()
        common = {number: sent(tensor, self._common) for number, tensor in several.items()}
        inputs, free, slots = self._shared_inputs(), list(range(self._slots)), dict[int, int]()
        results: dict[int, JobResult] = {}

        def calls() -> Iterator[tuple[int, Call]]:
            for index in order:
                slots[index] = slot = free.pop()
                self._inboxes[slot].clear()
                on_the_way = self._sent(tensors[index], common, self._inboxes[slot])
                plain = {name: getattr(tasks[index], name) for name in _PLAIN}
                job = Job(methods[index], plain, on_the_way, self._outboxes[slot])
                yield index, (pool_worker.train, (inputs, job))

        def done(index: int, answer: Trained) -> None:
            named = {name: received(each, self._buffer).clone() for name, each in answer.tensors.items()}
            free.append(slots[index])
            results[index] = as_result(named, answer.batch_sizes)

        self._each(calls(), done, patience)
        return [results[index] for index in range(len(tasks))]

    def evaluate(
        self, vector: Tensor, batches: int, mode: Mapping[str, Any], patience: float | None = None
    ) -> list[BatchScore]:
        """The scores of a model on the batches of the evaluation split, in their order.

        Args:
            vector: the model ``[size]``.
            batches: number of batches.
            mode: as for ``evaluate_batches``.
            patience: as for :meth:`train`.

        Raises:
            NotSendable: ``mode`` cannot be pickled or read.
            PoolBroken: a worker process ended or is stuck.
        """
        self._common.clear()
        inputs, weights, how = (
            self._shared_inputs(),
            sent(vector, self._common),
            _pickled(mode, "the mode of an evaluation"),
        )
        scores: dict[int, list[BatchScore]] = {}
        calls: list[tuple[int, Call]] = [
            (number, (pool_worker.score, (inputs, weights, share, how)))
            for number, share in enumerate(_shares(batches, self._pool.size))
        ]
        self._each(iter(calls), scores.__setitem__, patience)
        return [score for number in sorted(scores) for score in scores[number]]

    def _each(self, calls: Iterator[tuple[int, Call]], done: Any, patience: float | None) -> None:
        try:
            self._pool.each(calls, done, self._slots, patience)
        except Unreadable as error:
            raise NotSendable(f"a worker process cannot read what it was sent ({error})") from None

    def _shared_inputs(self) -> SharedInputs:
        return SharedInputs(self._model.token, self._data.token, self._buffer.token, self._precision)

    @staticmethod
    def _sent(tensors: Mapping[str, Tensor], common: Mapping[int, Sent], inbox: Region) -> dict[str, Sent]:
        """A job's tensors for sending; those that several jobs read are in ``common``, by ``id``."""
        own = {id(each): each for each in tensors.values() if id(each) not in common}
        placed = {**common, **{number: sent(each, inbox) for number, each in own.items()}}
        return {name: placed[id(each)] for name, each in tensors.items()}

    def _method(self, task: JobTask) -> bytes:
        """The parts that the jobs of a method share; pickled once, because pickling is slow."""
        parts = task.method, task.objective, task.rule, task.options
        if self._known is None or any(one is not other for one, other in zip(self._known[0], parts, strict=True)):
            self._known = parts, _pickled(replace(without_tensors(task), **_PLAIN), f"method '{task.method}'")
        return self._known[1]


_data_sets: weakref.WeakKeyDictionary[JobData, SharedObject] = weakref.WeakKeyDictionary()


def _shared_data(data: JobData) -> SharedObject:
    """A data set in shared memory, once for all engines that read it."""
    if data not in _data_sets:
        _data_sets[data] = _shared(data, "the data set")
    return _data_sets[data]


def _shared(value: Any, name: str) -> SharedObject:
    try:
        return SharedObject(value)
    except OSError:
        raise
    except Exception as error:
        raise NotSendable(f"{name} cannot be pickled ({type(error).__name__}: {error})") from error


def _pickled(value: Any, name: str) -> bytes:
    try:
        content: bytes = cloudpickle.dumps(value)
    except Exception as error:
        raise NotSendable(f"{name} cannot be pickled ({type(error).__name__}: {error})") from error
    return content


def _shares(batches: int, parts: int) -> list[range]:
    """The indices of so many batches, split into at most ``parts`` ranges of nearly equal length."""
    size = max(1, -(-batches // parts))
    return [range(start, min(start + size, batches)) for start in range(0, batches, size)]
