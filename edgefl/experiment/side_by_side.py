"""Worlds without training executed side by side: copies of this process, one for each processor."""

from __future__ import annotations

import gc
import multiprocessing
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

from edgefl.experiment.sweep.processes import processors

Item = TypeVar("Item")
Result = TypeVar("Result")

_work: Callable[[Any], Any] | None = None


def side_by_side(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """``work`` on every item, in the order of the items whoever did it; what a copy raises is raised here.

    The copies inherit ``work`` with everything that it holds, so only items and results travel. Nothing that ``work``
    does may use torch's threads, which a copy does not have. Where a process cannot be copied (outside Linux, forks
    of a process with threads are not safe), the items are done here, one after another.
    """
    workers = min(processors(), len(items))
    # What is loaded stays: the collector need not walk through all of torch again and again.
    gc.freeze()
    try:
        if workers < 2 or sys.platform != "linux":
            return [work(item) for item in items]
        context = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(work,)) as pool:
            return list(pool.map(_do, items))
    finally:
        gc.unfreeze()


def _begin(work: Callable[[Any], Any]) -> None:
    global _work  # noqa: PLW0603  (the one thing that a worker inherits)
    _work = work
    # Ctrl-C reaches the whole group: the process that waits for this one says what there is to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _do(item: Any) -> Any:
    if _work is None:
        raise RuntimeError("a worker was asked for work that it was not given")
    return _work(item)
