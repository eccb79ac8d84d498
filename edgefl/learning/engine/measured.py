"""An engine that is several: the fastest of them, by the clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from edgefl.learning.engine.base import Arrived, Engine, JobResult, JobTask, OnDemand, told, unnoticed
from edgefl.learning.engine.chunk_width import padded
from edgefl.learning.job import Evaluation


class MeasuredEngine(OnDemand):
    """Times engines on the first jobs of each kind, and trains with the fastest from then on.

    A kind is a method and a size of cohort, padded as chunks are; model and device are the same for all jobs. Every
    engine trains those first jobs twice, and the second time counts: the first sets up libraries and records graphs. So
    results are those of one of the engines, but the clock says which. What was found is written down at once, before
    anything reads a result, and a run that goes on from there keeps to it.

    Args:
        engines: by name; the first evaluates.
        found: the fastest engine's name by kind; read, and filled.
        clock: seconds; waits for an accelerator's work if there is one.
    """

    def __init__(
        self, engines: Mapping[str, Engine], found: MutableMapping[str, str], clock: Callable[[], float] = perf_counter
    ) -> None:
        self._engines = engines
        self._found = found
        self._clock = clock

    def train(self, tasks: Sequence[JobTask], arrived: Arrived = unnoticed) -> list[JobResult]:
        """Train all jobs; see :class:`~edgefl.learning.engine.base.Engine`."""
        if not tasks:
            return []
        kind = f"{tasks[0].method}, up to {padded(len(tasks))} jobs"
        known = self._engines.get(self._found.get(kind, ""))
        if known is not None:
            return known.train(tasks, arrived)
        seconds, results = {}, {}
        for name, engine in self._engines.items():
            engine.train(tasks)
            start = self._clock()
            results[name] = engine.train(tasks)
            seconds[name] = self._clock() - start
        fastest = min(seconds, key=lambda name: seconds[name])
        self._found[kind] = fastest
        return told(results[fastest], arrived)

    def evaluate(self, vector: Tensor, mode: Mapping[str, Any]) -> Evaluation:
        """Accuracy and mean cross-entropy on the evaluation split, which all engines agree on."""
        return next(iter(self._engines.values())).evaluate(vector, mode)

    def close(self) -> None:
        """Let go of all engines' workers and memory."""
        for engine in self._engines.values():
            engine.close()


def clock_of(device: torch.device) -> Callable[[], float]:
    """A clock that reads when the device's work is done."""

    def now() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return perf_counter()

    return now
