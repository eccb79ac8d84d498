"""The mean loss of a job's first and last local epoch."""

from __future__ import annotations

from math import fsum, isfinite, nan
from typing import NamedTuple

from edgefl.learning.engine.base import JobResult
from edgefl.learning.rules.base import LocalOptions


class EpochLosses(NamedTuple):
    """Mean cross-entropy over the images of the first and of the last local epoch."""

    first: float
    last: float


def epoch_losses(result: JobResult, options: LocalOptions, samples: int) -> EpochLosses:
    """What the job's cross-entropies come to, in float64.

    An epoch is one pass over the client's ``samples`` images; a job shorter than that is one epoch, and where steps
    are counted instead of epochs, the last epoch is the last pass's worth of steps.
    """
    sizes = result.batch_sizes
    losses = result.cross_entropies.tolist()
    epoch = max(1, options.steps_of_an_epoch(samples))
    return EpochLosses(_mean(losses[:epoch], sizes[:epoch]), _mean(losses[-epoch:], sizes[-epoch:]))


def _mean(losses: list[float], sizes: tuple[int, ...]) -> float:
    if not sizes:
        return nan
    terms = [loss * size for loss, size in zip(losses, sizes, strict=True)]
    # fsum refuses inf - inf; a diverged loss must come through as it is.
    return (fsum(terms) if all(map(isfinite, terms)) else sum(terms)) / sum(sizes)
