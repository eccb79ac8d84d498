"""The engine for CPUs: clients side by side on the cores, each on one."""

from __future__ import annotations

import copy
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, TypeVar

from torch import Tensor

from edgefl.learning.engine.base import Arrived, JobData, JobResult, JobTask, told, unnoticed
from edgefl.learning.engine.evaluation import BatchScore, evaluate_batch, total
from edgefl.learning.engine.local_training import Abandoned, train_job
from edgefl.learning.engine.process_copy import CrewLost, can_be_copied
from edgefl.learning.engine.threads import one_core_each
from edgefl.learning.engine.training_crew import TrainingCrew
from edgefl.learning.job import Evaluation
from edgefl.learning.models.block_model import BlockModel
from edgefl.learning.precision import Precision

Result = TypeVar("Result")

SETTLED_SECONDS = 1.0
"""Seconds of training after which an engine copies its process: short runs are over by then."""

_APPEARS_SECONDS = 5.0
"""How long a thread whose start was interrupted is waited for."""


class ParallelEngine:
    """Trains jobs on several cores at once; each job runs the same code as in the sequential engine, so bits agree.

    Workers are threads at first: operators let go of Python's lock while they compute, and threads share data and
    weights for nothing. But between operators threads wait for the lock, a fifth of the time with two of them and
    small batches. So once training has taken a while, the workers are copies of the process where it can be copied;
    weights then travel, which takes a fraction of a step. It never changes a result.

    Threads live as long as a call, so there is nothing to leak; what is worth keeping, one skeleton a worker, stays.

    Args:
        model: the skeleton that jobs are called with; every worker gets a copy, for a call puts weights into it.
        data: where batches come from; read by all workers.
        workers: jobs at once, at least 1.
        precision: of a local step's products.
        settled: seconds of training with threads before the process is copied; ``None``: never.
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
        self._crew: TrainingCrew | None = None
        self._settled = settled if workers > 1 and can_be_copied() else None
        self._seconds = 0.0
        self._steps = 0

    def train(self, tasks: Sequence[JobTask], arrived: Arrived = unnoticed) -> list[JobResult]:
        """Train all jobs, the longest first, so that no core waits long for the last one."""
        order = sorted(range(len(tasks)), key=lambda index: -tasks[index].steps)
        crew = self._crew_by_now() if len(tasks) > 1 else None
        if crew is not None:
            try:
                return crew.train(tasks, order, self._patience(max(task.steps for task in tasks)), arrived)
            except CrewLost:
                self._go_on_with_threads()

        def work(index: int, model: BlockModel, abandoned: Callable[[], bool]) -> JobResult:
            return train_job(tasks[index], model, self._data, abandoned, precision=self._precision)

        start = perf_counter()
        results = self._spread(work, order)
        self._seconds += perf_counter() - start
        self._steps += sum(task.steps for task in tasks)
        return told(results, arrived)

    def evaluate(self, vector: Tensor, mode: Mapping[str, Any]) -> Evaluation:
        """Accuracy and mean cross-entropy on the evaluation split; batches are added up in their own order."""
        places = self._data.evaluation()
        if self._crew is not None and len(places) > 1:
            try:
                return total(self._crew.evaluate(vector, len(places), mode, self._patience(len(places))))
            except CrewLost:
                self._go_on_with_threads()

        def work(index: int, model: BlockModel, _: Callable[[], bool]) -> BatchScore:
            return evaluate_batch(vector, places[index], model, self._data, mode)

        return total(self._spread(work, range(len(places))))

    def close(self) -> None:
        """Let go of the workers and their skeletons."""
        if self._crew is not None:
            self._crew.dismiss()
        self._crew = self._settled = None
        del self._skeletons[1:]

    def _go_on_with_threads(self) -> None:
        """Once and for all: they can do it."""
        if self._crew is not None:
            self._crew.dismiss()
        self._crew = self._settled = None

    def _patience(self, steps: int) -> float:
        """Far longer than so many local steps, or batches to evaluate, can take, by what threads took."""
        a_step = len(self._skeletons) * self._seconds / max(1, self._steps)
        return 60 + 100 * a_step * steps

    def _crew_by_now(self) -> TrainingCrew | None:
        if self._crew is None and self._settled is not None and self._seconds >= self._settled:
            try:
                self._crew = TrainingCrew(len(self._skeletons), self._skeletons[0], self._data, self._precision)
            except CrewLost:
                self._settled = None
        return self._crew

    def _spread(
        self, work: Callable[[int, BlockModel, Callable[[], bool]], Result], order: Sequence[int]
    ) -> list[Result]:
        """``work`` on every index, taken in ``order`` by whoever is free; the results in ascending order of index."""
        waiting = deque(order)
        results: dict[int, Result] = {}
        failures: dict[int, BaseException] = {}
        leaving = threading.Event()

        def worker(model: BlockModel) -> None:
            # A new thread takes over the number of intra-op threads only when it asks; some kernels never do.
            with one_core_each():
                while not leaving.is_set():
                    try:
                        index = waiting.popleft()
                    except IndexError:
                        return
                    try:
                        results[index] = work(index, model, leaving.is_set)
                    except Abandoned:
                        return
                    except BaseException as error:  # noqa: BLE001  (a worker hands every failure to the caller)
                        failures[index] = error
                        leaving.set()

        with one_core_each():
            crew = self._skeletons[: len(order)]
            if len(crew) > 1:
                _side_by_side(worker, crew, leaving)
            else:
                worker(self._skeletons[0])
        if failures:
            raise failures[min(failures)]
        return [results[index] for index in range(len(order))]


def _side_by_side(worker: Callable[[BlockModel], None], crew: Sequence[BlockModel], leaving: threading.Event) -> None:
    """Run a worker for each skeleton, and see all of them off, also when Ctrl-C reaches the waiting thread.

    A thread that still computes while the interpreter ends would abort the process. ``Thread.join`` does not keep it
    from that: once Ctrl-C has interrupted it, CPython 3.11 takes the thread for dead (gh-90882). Events do.
    """
    entered = [threading.Event() for _ in crew]
    ended = [threading.Event() for _ in crew]

    def work(number: int) -> None:
        entered[number].set()
        try:
            worker(crew[number])
        finally:
            ended[number].set()

    begun = 0
    try:
        for number in range(len(crew)):
            begun += 1
            threading.Thread(target=work, args=(number,), name="edgefl-trainer").start()
        for each in ended:
            each.wait()
    finally:
        leaving.set()
        for number in range(begun):
            # Ctrl-C may come within `start`: then nobody knows whether the thread is about to appear.
            if entered[number].wait(_APPEARS_SECONDS):
                ended[number].wait()
