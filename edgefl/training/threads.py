"""The number of cores that one operator uses.

Sums that are split over threads round differently, so the number of intra-op threads affects results. edgefl trains,
aggregates and evaluates with one on every machine, and uses several cores by running jobs in parallel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

INTRA_OP_THREADS = 1
"""Number of threads inside one operator while edgefl computes, on every machine and in every engine."""


@contextmanager
def one_core_each() -> Iterator[None]:
    """Run the block, and the threads that it starts, with one intra-op thread; then restore the previous setting.

    PyTorch stores the number twice: for the thread that sets it, and as the default of new threads. Both are set and
    restored here, so a caller that uses all cores itself can continue to do so.

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
