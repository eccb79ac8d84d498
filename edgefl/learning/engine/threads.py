"""How many cores one operator may use.

Sums split over threads round differently, so the number of intra-op threads is part of a result. edgefl trains,
aggregates and evaluates with one, whatever the machine; cores are used by running jobs side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

INTRA_OP_THREADS = 1
"""Threads inside one operator while edgefl computes, on every machine and in every engine."""


@contextmanager
def one_core_each() -> Iterator[None]:
    """Run the block, and the threads that it starts, with one intra-op thread; then restore what was set before.

    PyTorch keeps the number twice: for the thread that sets it, and as the default of threads to come. Both are set
    and restored here, so a caller who uses all cores for work of its own finds them again.

    >>> before = torch.get_num_threads()
    >>> with one_core_each():
    ...     torch.get_num_threads()
    1
    >>> torch.get_num_threads() == before
    True
    """
    before = torch.get_num_threads()
    if before == INTRA_OP_THREADS:
        yield
        return
    torch.set_num_threads(INTRA_OP_THREADS)
    try:
        yield
    finally:
        torch.set_num_threads(before)
