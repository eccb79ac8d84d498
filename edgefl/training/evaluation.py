"""Accuracy and loss of one model, batch by batch; the result does not depend on which worker computes which batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from edgefl.models.block_model import BlockModel
from edgefl.models.mode import using
from edgefl.training.base import JobData
from edgefl.training.device import exact_arithmetic
from edgefl.training.job import Evaluation
from edgefl.training.lent import Lent

PLAIN = {"training": False, "track": False, "width": 1.0, "keep": None, "keep_probability": None, "unfolded": False}
"""The mode of an evaluation, independent of the caller's mode; an objective may change parts of it."""

EVALUATED = "the evaluated model"

BATCH = 128
"""Images in an evaluation batch, on every device and engine; the last batch contains the remaining images."""


class BatchScore(NamedTuple):
    """Correct predictions, summed cross-entropy and number of images of one batch."""

    right: int
    cross_entropy: float
    images: int


def evaluate_batches(
    vector: Tensor, places: Sequence[slice], model: BlockModel, data: JobData, mode: Mapping[str, Any]
) -> list[BatchScore]:
    """Score the model ``vector`` ``[size]`` on some batches, with running statistics and without gradients.

    Args:
        vector: the model; the layers get a copy.
        places: the images of each batch.
        model: the skeleton.
        data: the source of the batches.
        mode: the differences from :data:`PLAIN`.

    Raises:
        WrittenInPlace: a layer wrote into the model.
    """
    right, cross_entropy, images = [], [], []
    with exact_arithmetic(vector.device), torch.no_grad(), using(**{**PLAIN, **mode}):
        lent = Lent({EVALUATED: vector}, model.layout)
        weights = model.layout.frozen(*model.layout.split(lent[EVALUATED]))
        for place in places:
            batch = data.evaluation_batch(place)
            logits = model.apply_blocks(weights, batch.inputs)
            lent.check()
            right.append((logits.argmax(dim=1) == batch.labels).sum())
            cross_entropy.append(F.cross_entropy(logits.double(), batch.labels, reduction="sum"))
            images.append(len(batch.labels))
        lent.check(numbers=True)
    if not images:
        return []
    # One transfer for all batches: on an accelerator each .item() would wait for the device.
    return list(map(BatchScore, torch.stack(right).tolist(), torch.stack(cross_entropy).tolist(), images))


def total(scores: Sequence[BatchScore]) -> Evaluation:
    """The evaluation over all batches.

    Raises:
        ValueError: there are no images.
    """
    images = sum(score.images for score in scores)
    if not images:
        raise ValueError("the evaluation split is empty")
    return Evaluation(
        sum(score.right for score in scores) / images, _sum([score.cross_entropy for score in scores]) / images
    )


def _sum(numbers: list[float]) -> float:
    """An exactly rounded sum; NaN or infinite if a term is (``fsum`` raises an error for inf - inf)."""
    try:
        return fsum(numbers)
    except (OverflowError, ValueError):
        return sum(numbers)
