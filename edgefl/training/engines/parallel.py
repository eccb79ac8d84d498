"""The engine for CPUs: clients train in parallel, each in a worker process on one core."""

from __future__ import annotations

import logging
import weakref
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from time import perf_counter
from typing import Any, TypeVar

import cloudpickle
from torch import Tensor

from edgefl.errors import EdgeflError, UserError
from edgefl.hardware import cores
from edgefl.models.block_model import BlockModel
from edgefl.torch_settings import Precision
from edgefl.training.engine_spec import ENGINES, EngineEntry, choose_device, choose_engine
from edgefl.training.engines.sequential import SequentialEngine
from edgefl.training.evaluation import BatchScore, total
from edgefl.training.job import Evaluation
from edgefl.training.job_task import ClientData, JobResult, JobTask, joined, split
from edgefl.training.parallel import pool_worker
from edgefl.training.parallel.pool_worker import Job, SharedInputs, Unreadable
from edgefl.training.parallel.shared_memory import Buffer, Region, Sent, SharedObject, received
from edgefl.training.parallel.worker_pool import Call, PoolBroken, WorkerPool, shared_pool

SETTLED_SECONDS = 1.0
"""Seconds of training after which worker processes start; starting takes seconds, and short runs end before."""

EARLY_JOBS = 50
"""Number of a run's jobs from which on worker processes start before it reads its inputs."""

_LATER = 20
"""Factor on the time before worker processes start, after a failure of earlier ones."""

_VECTORS = 8
"""Number of model-sized vectors that each region of the buffer holds; further ones are sent with the message."""

_PLAIN = ("seed", "client", "round", "dispatch", "steps", "alpha", "level", "lr", "rates", "until", "sizes")
"""The fields in which the jobs of a method differ."""

Sendable = TypeVar("Sendable")
_log = logging.getLogger(__name__)


class NotSendable(EdgeflError):  # noqa: N818  (what it is)
    """A part of a method, the model or the data cannot be pickled, or a worker process cannot read it."""


class ParallelEngine:
    """Trains jobs on several cores at once; each job runs the sequential engine's code, so results are bit-identical.

    Worker processes start in the background; until they are ready, or if they fail, or a method cannot be sent to them,
    this process trains and evaluates, one job after another. This never changes a result.

    Worker processes belong to the process, not to the engine or the calling thread: the next engine uses them again.
    """

    def __init__(
        self,
        model: BlockModel,
        data: ClientData,
        workers: int,  # number of concurrent jobs, at least 1
        precision: Precision = "float32",
        *,
        settled: float | None = None,  # seconds of training before worker processes start; by default SETTLED_SECONDS
    ) -> None:
        self._model, self._data, self._workers, self._precision = model, data, workers, precision
        self._here = SequentialEngine(model, data, precision)
        self._pool: PoolTraining | None = None
        # None: never, unless some are ready already
        self._settled = None if workers == 1 else SETTLED_SECONDS if settled is None else settled
        self._unsendable: list[object] = []
        self._seconds = 0.0

    def train(self, tasks: Sequence[JobTask]) -> list[JobResult]:
        """Worker processes begin with the longest jobs, so that all end at about the same time."""
        start = perf_counter()
        try:
            objectives = [task.objective for task in tasks]
            pool = self._ready_pool(*objectives) if len(tasks) > 1 else None
            if pool is not None:
                try:
                    return pool.train(tasks)
                except (PoolBroken, NotSendable) as error:
                    self._failed(error, *objectives)
            return self._here.train(tasks)
        finally:
            self._seconds += perf_counter() - start

    def evaluate(self, vector: Tensor, mode: Mapping[str, Any]) -> Evaluation:
        batches = len(self._data.evaluation())
        pool = self._ready_pool(mode) if batches > 1 else None
        if pool is not None:
            try:
                return total(pool.evaluate(vector, batches, mode), self._model.task)
            except (PoolBroken, NotSendable) as error:
                self._failed(error, mode)
        return self._here.evaluate(vector, mode)

    def close(self) -> None:
        """Start no more worker processes; running ones remain for the next engine."""
        self._pool = self._settled = None

    def _failed(self, error: Exception, *parts: object) -> None:
        if isinstance(error, NotSendable):
            _log.warning("%s; training uses one process only", error)
            self._unsendable += parts
            return
        _log.warning("worker processes: %s; training continues in this process", error)
        self._pool = None
        if self._settled is not None:
            self._settled = _LATER * max(self._seconds, SETTLED_SECONDS)

    def _ready_pool(self, *parts: object) -> PoolTraining | None:
        if any(part is each for part in parts for each in self._unsendable):
            return None
        if self._pool is not None and self._pool.broken:
            self._pool = None  # another engine found and logged the failure
        if self._pool is not None or self._settled is None:
            return self._pool
        try:
            modules = {type(layer).__module__ for layer in self._model.modules()}
            pool = shared_pool(self._workers, begin=self._seconds >= self._settled, modules=modules)
            if pool is not None and pool.ready:
                self._pool = PoolTraining(pool, self._here)
        except PoolBroken as error:
            self._failed(error)
        except NotSendable as error:
            self._failed(error)
            self._settled = None
        return self._pool


def begin_workers(jobs: int, engine: str, device: str, modules: Collection[str] = ()) -> None:
    """Start worker processes, which import ``modules``, for a run that will train so many jobs; not for a few."""
    with suppress(UserError, PoolBroken):  # whose message is that of the place where it matters
        if jobs >= EARLY_JOBS and cores() > 1 and choose_engine(engine, choose_device(device)) == "parallel":
            shared_pool(cores(), modules=modules)


class PoolTraining:
    """Trains jobs in the worker processes of a pool, which is ready; of a single one's, this process trains some, too.

    The data set and the model are shared once. Weights are sent in a shared buffer. Its first region holds the weights
    that several jobs read or that are evaluated. Each running job has another one, for the weights that it alone reads,
    and then for its result. So messages are short: a worker process that is killed leaves no part of one.
    """

    def __init__(self, pool: WorkerPool, here: SequentialEngine) -> None:
        model, data = here.model, here.data
        self._pool, self._here = pool, here
        self._both = pool.size == 1  # else all cores have a worker process
        room = _VECTORS * (-(-model.layout.size * 4 // 64) * 64 + 4096)
        # One more is queued for the next free process, and one more has its result being read.
        slots = 2 * pool.size + 1
        try:
            self._model = _sendable(SharedObject, model, "the model")
            if data not in _data_sets:
                _data_sets[data] = _sendable(SharedObject, data, "the data set")
            self._data = _data_sets[data]
            self._buffer = Buffer(max(64, room * (1 + slots)))
        except OSError as error:
            raise PoolBroken(f"no shared memory is available for worker processes: {error}") from None
        self._memory = self._buffer.memory
        self._room = room
        self._regions = [((1 + slot) * room, room) for slot in range(slots)]
        self._inputs = SharedInputs(
            self._model.token, self._data.token, self._buffer.token, self._buffer.size, here.precision
        )
        self._known: tuple[tuple[object, ...], bytes] | None = None

    @property
    def broken(self) -> bool:
        return self._pool.broken

    def train(self, tasks: Sequence[JobTask]) -> list[JobResult]:
        """Train all jobs; some in two parts, see :func:`divided`."""
        order, first_steps = divided([task.steps for task in tasks], self._pool.size + self._both)
        methods = [self._method(task) for task in tasks]
        tensors = [split(task)[1] for task in tasks]
        readers = Counter(id(tensor) for named in tensors for tensor in named.values())
        several = {id(each): each for named in tensors for each in named.values() if readers[id(each)] > 1}
        shared = Region(self._memory, 0, self._room)
        common = {number: shared.put(tensor) for number, tensor in several.items()}
        free, regions = list(self._regions), dict[int, tuple[int, int]]()
        begun: dict[int, JobResult] = {}
        results: dict[int, JobResult] = {}
        count = len(tasks)
        numbers = deque([*order, *(count + index for index in first_steps)])  # of the second parts after the others'

        def following() -> int | None:
            waits = not numbers or (numbers[0] >= count and numbers[0] - count not in begun)
            return None if waits else numbers.popleft()

        def part(number: int) -> JobTask:
            task, first = tasks[number % count], begun.get(number - count)
            if first is not None:
                return replace(task, begun=split(first)[1], sizes=first.batch_sizes)
            return replace(task, until=first_steps.get(number, 0))

        def trained(number: int, result: JobResult) -> None:
            (begun if number in first_steps else results)[number % count] = result

        def call(number: int) -> Call:
            task = part(number)
            regions[number] = region = free.pop()
            sent = _sent(split(task)[1], common, Region(self._memory, *region))
            plain = {name: getattr(task, name) for name in _PLAIN}
            return pool_worker.train, (self._inputs, Job(methods[number % count], plain, sent, region))

        def done(number: int, answer: tuple[JobResult, dict[str, Sent]]) -> None:
            bare, sent = answer
            tensors = {name: received(each, self._memory).clone() for name, each in sent.items()}
            trained(number, joined(bare, tensors))
            free.append(regions[number])

        def here(number: int) -> None:
            trained(number, self._here.train([part(number)])[0])

        self._each(following, call, done, 2 if self._both else len(self._regions), here if self._both else None)
        return [results[index] for index in range(count)]

    def evaluate(self, vector: Tensor, batches: int, mode: Mapping[str, Any]) -> list[BatchScore]:
        """The scores of the model ``vector`` ``[size]`` on so many batches of the evaluation split, in their order."""
        weights = Region(self._memory, 0, self._room).put(vector)
        how = _sendable(cloudpickle.dumps, mode, "the mode of an evaluation")
        size = max(1, -(-batches // (self._pool.size + self._both)))
        shares = [range(start, min(start + size, batches)) for start in range(0, batches, size)]
        scores: dict[int, list[BatchScore]] = {}

        def call(number: int) -> Call:
            return pool_worker.score, (self._inputs, weights, shares[number], how)

        def here(number: int) -> None:
            scores[number] = self._here.scores(vector, mode, shares[number])

        numbers = iter(range(len(shares)))
        self._each(lambda: next(numbers, None), call, scores.__setitem__, self._pool.size, here if self._both else None)
        return [score for number in sorted(scores) for score in scores[number]]

    def _each(self, *calls: Any) -> None:
        try:
            self._pool.each(*calls)
        except Unreadable as error:
            raise NotSendable(f"a worker process cannot read what it was sent ({error})") from None

    def _method(self, task: JobTask) -> bytes:
        """Pickled once, because pickling is slow."""
        parts = task.method, task.objective, task.rule, task.options
        if self._known is None or any(one is not other for one, other in zip(self._known[0], parts, strict=True)):
            plain: dict[str, Any] = dict.fromkeys(_PLAIN, 0)
            bare = replace(split(task)[0], **plain)
            self._known = parts, _sendable(cloudpickle.dumps, bare, f"method '{task.method}'")
        return self._known[1]


def divided(steps: Sequence[int], workers: int) -> tuple[list[int], dict[int, int]]:
    """The order in which workers take jobs of so many ``steps``, and of those in two parts the steps of the first.

    The longest are first, also of the second parts, which follow all others. If the last worker would end a twentieth
    later than it must, as one of two does with five equal jobs, jobs are divided by the rule of McNaughton (1959):
    worker by worker is filled up to the same time, and the job that does not fit runs its first steps at the beginning
    of the next worker's time, the rest at the end.

    >>> divided([4, 9, 5], 2), divided([10] * 5, 2)
    (([1, 2, 0], {}), ([2, 0, 1, 3, 4], {2: 5}))
    """
    order = sorted(range(len(steps)), key=lambda index: -steps[index])
    ends = [0] * workers
    for index in order:
        ends[ends.index(min(ends))] += steps[index]
    time = max(-(-sum(steps) // workers), *steps)
    first: dict[int, int] = {}
    if max(ends) > 1.05 * time:
        room = time
        for index in order:
            if 0 < room < steps[index]:
                first[index] = steps[index] - room
            room = (room if steps[index] <= room else room + time) - steps[index]
        order.sort(key=lambda index: index not in first)
    return order, dict(sorted(first.items(), key=lambda each: each[1] - steps[each[0]]))


_data_sets: weakref.WeakKeyDictionary[ClientData, SharedObject] = weakref.WeakKeyDictionary()


def _sent(tensors: Mapping[str, Tensor], common: Mapping[int, Sent], region: Region) -> dict[str, Sent]:
    own = {id(each): each for each in tensors.values() if id(each) not in common}
    placed = {**common, **{number: region.put(each) for number, each in own.items()}}
    return {name: placed[id(each)] for name, each in tensors.items()}


def _sendable(form: Callable[[Any], Sendable], value: Any, name: str) -> Sendable:
    try:
        return form(value)
    except OSError:
        raise
    except Exception as error:
        raise NotSendable(f"{name} cannot be pickled ({type(error).__name__}: {error})") from error


ENGINES.register("parallel")(
    EngineEntry(
        lambda given: ParallelEngine(given.model, given.data, given.workers or cores(), given.precision),
        devices=("cpu",),
    )
)
