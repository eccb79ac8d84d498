"""The engine for CPUs: clients train in parallel, each in a worker process on one core."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from edgefl.methods.parts.local_step import Precision
from edgefl.models.block_model import BlockModel
from edgefl.training.base import JobData, JobResult, JobTask
from edgefl.training.evaluation import total
from edgefl.training.job import Evaluation
from edgefl.training.parallel.pool_training import NotSendable, PoolTraining
from edgefl.training.parallel.worker_pool import PoolBroken, ready_pool, shared_pool
from edgefl.training.sequential import SequentialEngine

SETTLED_SECONDS = 5.0
"""Seconds of training after which worker processes start; starting takes seconds, and short runs end before."""

_LATER = 4
"""Factor on the time before worker processes start, after a failure of earlier ones."""

_log = logging.getLogger(__name__)


class ParallelEngine:
    """Trains jobs on several cores at once; each job runs the sequential engine's code, so results are bit-identical.

    Worker processes start in the background, and train and evaluate as soon as they are ready; until then this process
    does, one job after another. This never changes a result. If worker processes fail, or a method cannot be sent to
    them, the log states it and this process continues.

    Worker processes belong to the process, not to the engine or the calling thread: the next engine uses them again.

    Args:
        model: the skeleton that jobs are called with.
        data: the source of batches.
        workers: number of concurrent jobs, at least 1.
        precision: precision of a local step's products.
        settled: seconds of training before worker processes start, unless some are ready already; ``None``: never.
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
        self._model, self._data, self._workers, self._precision = model, data, workers, precision
        self._here = SequentialEngine(model, data, torch.device("cpu"), precision)
        self._pool: PoolTraining | None = None
        self._settled = settled if workers > 1 else None
        self._unsendable: list[object] = []
        self._seconds = 0.0
        self._steps = 0

    def train(self, tasks: Sequence[JobTask]) -> list[JobResult]:
        """Train all jobs; worker processes begin with the longest, so that all end at about the same time."""
        objectives = [task.objective for task in tasks]
        pool = self._ready_pool() if len(tasks) > 1 and self._is_sendable(*objectives) else None
        start = perf_counter()
        if pool is not None:
            order = sorted(range(len(tasks)), key=lambda index: -tasks[index].steps)
            patience = self._patience(max(task.steps for task in tasks))
            try:
                results = pool.train(tasks, order, patience)
            except PoolBroken as error:
                self._broke(error)
            except NotSendable as error:
                self._not_sendable(error, *objectives)
            else:
                self._took(start, tasks)
                return results
        start = perf_counter()
        results = self._here.train(tasks)
        self._took(start, tasks)
        return results

    def evaluate(self, vector: Tensor, mode: Mapping[str, Any]) -> Evaluation:
        """Metric and mean loss on the evaluation split; batches are summed in their order."""
        batches = len(self._data.evaluation())
        pool = self._ready_pool() if batches > 1 and self._is_sendable(mode) else None
        if pool is not None:
            try:
                return total(pool.evaluate(vector, batches, mode, self._patience(batches)), self._model.task)
            except PoolBroken as error:
                self._broke(error)
            except NotSendable as error:
                self._not_sendable(error, mode)
        return self._here.evaluate(vector, mode)

    def close(self) -> None:
        """Start no more worker processes; running ones remain for the next engine, or end after a minute."""
        self._pool = self._settled = None

    def _broke(self, error: Exception) -> None:
        """Continue in this process for a while."""
        _log.warning("worker processes: %s; training continues in this process", error)
        self._pool = None
        if self._settled is not None:
            self._settled = _LATER * max(self._seconds, SETTLED_SECONDS)

    def _not_sendable(self, error: Exception, *parts: object) -> None:
        """Use only this process for jobs with one of these objectives, or for evaluations in this mode."""
        _log.warning("%s; training uses one process only", error)
        self._unsendable += parts

    def _is_sendable(self, *parts: object) -> bool:
        return not any(part is each for part in parts for each in self._unsendable)

    def _took(self, start: float, tasks: Sequence[JobTask]) -> None:
        self._seconds += perf_counter() - start
        self._steps += sum(task.steps for task in tasks)

    def _patience(self, steps: int) -> float | None:
        """A timeout far above the time that so many steps or evaluation batches take, estimated from earlier steps."""
        if not self._steps:
            return None
        return 120 + 100 * steps * self._workers * self._seconds / self._steps

    def _ready_pool(self) -> PoolTraining | None:
        """The worker processes, if they are ready; they start after some training."""
        if self._pool is not None and self._pool.broken:
            self._pool = None  # another engine found and logged the failure
        if self._pool is not None or self._settled is None:
            return self._pool
        try:
            pool = ready_pool(self._workers)
            if pool is None and self._seconds >= self._settled:
                pool = shared_pool(self._workers)
            if pool is not None and pool.ready:
                self._pool = PoolTraining(pool, self._model, self._data, self._precision)
        except PoolBroken as error:
            self._broke(error)
        except NotSendable as error:
            _log.warning("%s; training uses one process only", error)
            self._settled = None
        return self._pool
