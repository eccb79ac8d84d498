"""The engine for CPUs: clients run in parallel, each on one core."""

from __future__ import annotations

import copy
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from time import perf_counter
from typing import Any, TypeVar

from torch import Tensor

from edgefl.methods.precision import Precision
from edgefl.models.block_model import BlockModel
from edgefl.torch_settings import neutral_torch
from edgefl.training.base import Arrived, JobData, JobResult, JobTask, delivered, ignored
from edgefl.training.evaluation import BatchScore, evaluate_batch, total
from edgefl.training.job import Evaluation
from edgefl.training.local_training import Abandoned, train_job
from edgefl.training.parallel.pool_training import NotSendable, PoolTraining
from edgefl.training.parallel.worker_pool import PoolBroken, pool_at_hand, shared_pool

Result = TypeVar("Result")

SETTLED_SECONDS = 5.0
"""Seconds of training after which worker processes start; starting takes seconds, and short runs end before."""

_PATIENCE_WITH_POOLS = 4
"""Factor by which the time with threads grows after each failure of a pool, before the next pool starts."""

_log = logging.getLogger(__name__)

_APPEARS_SECONDS = 5.0
"""Seconds to wait for a thread whose start was interrupted."""


class ParallelEngine:
    """Trains jobs on several cores at once; each job runs the sequential engine's code, so results are bit-identical.

    Workers are threads at first: operators release Python's global lock while they compute, and threads share data and
    weights at no cost. But between operators threads wait for the lock, a fifth of the time with two threads and small
    batches. So after some training, worker processes start in the background and replace the threads when they are
    ready; sending weights to them takes a fraction of a step. This never changes a result. If worker processes fail, or
    a method cannot be sent to them, the log states it and training continues with threads.

    Threads end with each call, so they cannot leak; the engine keeps one skeleton per worker. Worker processes belong
    to the process, not to the engine or the calling thread: the next engine uses them again.

    Args:
        model: the skeleton that jobs are called with; every worker gets a copy, because a call inserts weights into it.
        data: the source of batches; read by all workers.
        workers: number of concurrent jobs, at least 1.
        precision: precision of a local step's products.
        settled: seconds of training with threads before worker processes start; ``None``: never.
    """

    def __init__(
        self,
        model: BlockModel,
        data: JobData,
        workers: int,
        precision: Precision = "float32",
        *,
        settled: float | None = SETTLED_SECONDS,
    ) -> None:
        if workers < 1:
            raise ValueError(f"an engine needs at least one worker, not {workers}")
        self._skeletons = [model, *(copy.deepcopy(model) for _ in range(workers - 1))]
        self._data = data
        self._precision = precision
        self._pool: PoolTraining | None = None
        self._settled = settled if workers > 1 else None
        self._threads_only: list[object] = []
        self._seconds = self._seconds_at_break = 0.0
        self._steps = 0

    def train(self, tasks: Sequence[JobTask], arrived: Arrived = ignored) -> list[JobResult]:
        """Train all jobs, the longest first, so that all cores finish at about the same time."""
        order = sorted(range(len(tasks)), key=lambda index: -tasks[index].steps)
        start = perf_counter()
        objectives = [task.objective for task in tasks]
        pool = self._pool_by_now() if len(tasks) > 1 and not self._stays_here(*objectives) else None
        if pool is not None:
            try:
                results = pool.train(tasks, order, self._patience(max(task.steps for task in tasks)), arrived)
            except PoolBroken as error:
                self._broke(error)
            except NotSendable as error:
                self._keep_here(error, *objectives)
            else:
                self._took(start, tasks)
                return results

        def work(index: int, model: BlockModel, abandoned: Callable[[], bool]) -> JobResult:
            return train_job(tasks[index], model, self._data, abandoned, precision=self._precision)

        start = perf_counter()
        results = self._spread(work, order)
        self._took(start, tasks)
        return delivered(results, arrived)

    def evaluate(self, vector: Tensor, mode: Mapping[str, Any]) -> Evaluation:
        """Accuracy and mean cross-entropy on the evaluation split; batches are summed in their order."""
        places = self._data.evaluation()
        pool = self._pool_by_now() if len(places) > 1 and not self._stays_here(mode) else None
        if pool is not None:
            try:
                return total(pool.evaluate(vector, len(places), mode, self._patience(len(places))))
            except PoolBroken as error:
                self._broke(error)
            except NotSendable as error:
                self._keep_here(error, mode)

        def work(index: int, model: BlockModel, _: Callable[[], bool]) -> BatchScore:
            return evaluate_batch(vector, places[index], model, self._data, mode)

        return total(self._spread(work, range(len(places))))

    def close(self) -> None:
        """Release the workers' skeletons; worker processes stay for the next engine, or end after a while."""
        self._pool = self._settled = None
        del self._skeletons[1:]

    def _broke(self, error: Exception) -> None:
        """Continue with threads for a while."""
        _log.warning("worker processes: %s; training continues with threads", error)
        self._pool = None
        self._seconds_at_break = self._seconds
        if self._settled is not None:
            self._settled = _PATIENCE_WITH_POOLS * max(self._settled, 1.0)

    def _keep_here(self, error: Exception, *parts: object) -> None:
        """Use threads for jobs with one of these objectives, or for evaluations in this mode."""
        _log.warning("%s; training uses threads only", error)
        self._threads_only += parts

    def _stays_here(self, *parts: object) -> bool:
        return any(part is each for part in parts for each in self._threads_only)

    def _took(self, start: float, tasks: Sequence[JobTask]) -> None:
        self._seconds += perf_counter() - start
        self._steps += sum(task.steps for task in tasks)

    def _patience(self, steps: int) -> float | None:
        """A timeout far above the time that so many steps or evaluation batches take, estimated from earlier steps."""
        if not self._steps:
            return None
        return 120 + 100 * steps * len(self._skeletons) * self._seconds / self._steps

    def _pool_by_now(self) -> PoolTraining | None:
        """The worker processes, if they are ready; they start after some training."""
        if self._pool is not None and self._pool.broken:
            self._pool = None  # another engine found and logged the failure
        if self._pool is not None or self._settled is None:
            return self._pool
        try:
            pool = pool_at_hand(len(self._skeletons))
            if pool is None and self._seconds - self._seconds_at_break >= self._settled:
                pool = shared_pool(len(self._skeletons))
            if pool is not None and pool.ready:
                self._pool = PoolTraining(pool, self._skeletons[0], self._data, self._precision)
        except PoolBroken as error:
            self._broke(error)
        except NotSendable as error:
            _log.warning("%s; training uses threads only", error)
            self._settled = None
        return self._pool

    def _spread(
        self, work: Callable[[int, BlockModel, Callable[[], bool]], Result], order: Sequence[int]
    ) -> list[Result]:
        """Run ``work`` on every index: free workers take them in ``order``; results are in ascending order of index."""
        waiting = deque(order)
        results: dict[int, Result] = {}
        failures: dict[int, BaseException] = {}
        leaving = threading.Event()

        def worker(model: BlockModel) -> None:
            # A new thread applies the number of intra-op threads only when it is queried; some kernels never query it.
            with neutral_torch():
                while not leaving.is_set():
                    try:
                        index = waiting.popleft()
                    except IndexError:
                        return
                    try:
                        results[index] = work(index, model, leaving.is_set)
                    except Abandoned:
                        return
                    except BaseException as error:  # noqa: BLE001  (a worker passes every failure to the caller)
                        failures[index] = error
                        leaving.set()

        with neutral_torch():
            skeletons = self._skeletons[: len(order)]
            if len(skeletons) > 1:
                _side_by_side(worker, skeletons, leaving)
            else:
                worker(self._skeletons[0])
        if failures:
            raise failures[min(failures)]
        return [results[index] for index in range(len(order))]


def _side_by_side(
    worker: Callable[[BlockModel], None], skeletons: Sequence[BlockModel], leaving: threading.Event
) -> None:
    """Run a worker for each skeleton and wait until all end, even if Ctrl-C interrupts the waiting thread.

    A thread that still computes while the interpreter ends would abort the process. ``Thread.join`` does not prevent
    that: after Ctrl-C interrupts it, CPython 3.11 considers the thread ended (gh-90882). Events work.
    """
    entered = [threading.Event() for _ in skeletons]
    ended = [threading.Event() for _ in skeletons]

    def work(number: int) -> None:
        entered[number].set()
        try:
            worker(skeletons[number])
        finally:
            ended[number].set()

    begun = 0
    try:
        for number in range(len(skeletons)):
            begun += 1
            threading.Thread(target=copy_context().run, args=(work, number), name="edgefl-trainer").start()
        for each in ended:
            each.wait()
    finally:
        leaving.set()
        for number in range(begun):
            # Ctrl-C may interrupt `start`: then it is unknown whether the thread will still appear.
            if entered[number].wait(_APPEARS_SECONDS):
                ended[number].wait()
