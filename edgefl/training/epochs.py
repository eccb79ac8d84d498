"""The mean loss of a job's first and last local epoch."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, isfinite, nan
from typing import NamedTuple

import torch
from torch import Tensor

from edgefl.methods.parts.local_options import LocalOptions
from edgefl.training.base import JobResult


class EpochLosses(NamedTuple):
    """Mean of the task's loss over the batches of the first and of the last local epoch, weighted by their samples."""

    first: float
    last: float


def epoch_losses(result: JobResult, options: LocalOptions, samples: int) -> EpochLosses:
    """The mean losses of the job's first and last local epoch, in float64.

    An epoch is one pass over the client's ``samples``. A shorter job counts as one epoch. If the options give
    steps instead of epochs, the last epoch is the last steps that together make one pass.
    """
    sizes = result.batch_sizes
    losses = result.cross_entropies.tolist()
    epoch = max(1, options.steps_of_an_epoch(samples))
    return EpochLosses(_mean(losses[:epoch], sizes[:epoch]), _mean(losses[-epoch:], sizes[-epoch:]))


def in_main_memory(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """One-dimensional tensors in main memory; those of an accelerator are read in one copy, for which it waits once."""
    if not tensors or tensors[0].device.type == "cpu":
        return tensors
    return torch.split(torch.cat(list(tensors)).cpu(), [len(each) for each in tensors])


def _mean(losses: list[float], sizes: tuple[int, ...]) -> float:
    if not sizes:
        return nan
    terms = [loss * size for loss, size in zip(losses, sizes, strict=True)]
    # fsum raises an error for inf - inf, but a diverged loss must be returned.
    return (fsum(terms) if all(map(isfinite, terms)) else sum(terms)) / sum(sizes)
