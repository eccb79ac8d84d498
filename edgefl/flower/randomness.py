"""The global generators of Python, NumPy and PyTorch, seeded for a run and for each message."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from edgefl.randomness import integer_seed


@contextmanager
def seeded(seed: int, purpose: str, *ids: int | str) -> Iterator[None]:
    """Within the block the global generators begin with a seed of their own; afterwards they continue as before.

    >>> with seeded(0, "demo"):
    ...     one = random.random()
    >>> with seeded(0, "demo"):
    ...     one == random.random()
    True
    """
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002  (apps use it)
    # PyTorch seeds its GPU generators, too; without a GPU in use there are no states to keep.
    gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    number = integer_seed(seed, purpose, *ids)
    random.seed(number)
    np.random.seed(number % 2**32)  # noqa: NPY002
    torch.manual_seed(number)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
        torch.set_rng_state(before[2])
        if gpus:
            torch.cuda.set_rng_state_all(gpus)
