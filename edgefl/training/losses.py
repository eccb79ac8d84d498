"""The mean losses of a job's first and last local epoch, and of one model on the training images of single clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import fsum, isfinite, nan
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgefl.methods.parts.local_options import LocalOptions
from edgefl.models.block_model import BlockModel
from edgefl.torch_settings import neutral_torch
from edgefl.training.base import JobData, JobResult
from edgefl.training.evaluation import evaluate_batches, total


def epoch_losses(result: JobResult, options: LocalOptions, samples: int) -> tuple[float, float]:
    """The mean loss over the batches of the job's first and last local epoch, weighted by their samples, in float64.

    An epoch is one pass over the client's ``samples``. A shorter job counts as one epoch. If the options give
    steps instead of epochs, the last epoch is the last steps that together make one pass.
    """
    sizes = result.batch_sizes
    losses = result.cross_entropies.tolist()
    epoch = max(1, options.steps_of_an_epoch(samples))
    return _mean(losses[:epoch], sizes[:epoch]), _mean(losses[-epoch:], sizes[-epoch:])


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


def local_losses(
    vector: Tensor,
    model: BlockModel,
    mode: Mapping[str, Any],
    data: JobData,
    *,
    clients: Sequence[int],
    images: int | None,
    draws: Callable[[int], np.random.Generator],
) -> list[float]:
    """The mean loss on each client's training images, without augmentation.

    ``images`` of each client are drawn from the generator ``draws(client)``; ``None``: all are used.
    """
    losses = []
    with neutral_torch():
        for client in clients:
            chosen, held = None, data.samples(client)
            if images is not None and images < held:
                chosen = np.sort(draws(client).choice(held, size=images, replace=False))
            own = data.own(client, chosen)
            losses.append(total(evaluate_batches(vector, own.evaluation(), model, own, mode), model.task).loss)
    return losses
