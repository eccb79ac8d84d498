"""Accuracy and loss of one model, batch by batch; the result does not depend on which worker computes which batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    """Correct predictions, summed cross-entropy and number of images of one batch; the first two stay on the device."""

    right: Tensor
    cross_entropy: Tensor
    images: int


def evaluate_batch(
    vector: Tensor, place: slice, model: BlockModel, data: JobData, mode: Mapping[str, Any]
) -> BatchScore:
    """Score the model ``vector`` ``[size]`` on one batch, with running statistics and without gradients.

    Every batch is scored on a copy of the model, so that a layer that changes the model cannot affect another batch.

    Args:
        vector: the model.
        place: the images of the batch.
        model: the skeleton.
        data: the source of the batch.
        mode: the differences from :data:`PLAIN`.

    Raises:
        WrittenInPlace: a layer wrote into the model.
    """
    with exact_arithmetic(vector.device), torch.no_grad(), using(**{**PLAIN, **mode}):
        batch = data.evaluation_batch(place)
        lent = Lent({EVALUATED: vector}, model.layout)
        logits = model.apply_blocks(model.layout.frozen(*model.layout.split(lent[EVALUATED])), batch.inputs)
        lent.check(numbers=True)
        right = (logits.argmax(dim=1) == batch.labels).sum()
        return BatchScore(right, F.cross_entropy(logits.double(), batch.labels, reduction="sum"), len(batch.labels))


def total(scores: Iterable[BatchScore]) -> Evaluation:
    """The evaluation over all batches.

    Raises:
        ValueError: there are no images.
    """
    scores = list(scores)
    images = sum(score.images for score in scores)
    if not images:
        raise ValueError("the evaluation split is empty")
    # One transfer for all batches: on an accelerator each .item() would wait for the device.
    right = torch.stack([score.right for score in scores]).tolist()
    loss = torch.stack([score.cross_entropy for score in scores]).tolist()
    return Evaluation(sum(right) / images, _sum(loss) / images)


def _sum(numbers: list[float]) -> float:
    """An exactly rounded sum; NaN or infinite if a term is (``fsum`` raises an error for inf - inf)."""
    try:
        return fsum(numbers)
    except (OverflowError, ValueError):
        return sum(numbers)
