"""Accuracy and loss of one model, batch by batch, in numbers that do not depend on who computes which batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import fsum
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from edgefl.learning.engine.base import JobData
from edgefl.learning.engine.lent import Lent
from edgefl.learning.job import Evaluation
from edgefl.learning.models.block_model import BlockModel
from edgefl.learning.models.mode import using

PLAIN = {"training": False, "track": False, "width": 1.0, "keep": None, "keep_probability": None, "unfolded": False}
"""The mode of an evaluation, whatever mode the caller is in, unless an objective asks for more."""

EVALUATED = "the evaluated model"

BATCH = 128
"""Images in an evaluation batch, on every device and engine; the last batch holds the rest."""


class BatchScore(NamedTuple):
    """Right answers, summed cross-entropy, and images of one batch; the first two stay on the device."""

    right: Tensor
    cross_entropy: Tensor
    images: int


def evaluate_batch(
    vector: Tensor, place: slice, model: BlockModel, data: JobData, mode: Mapping[str, Any]
) -> BatchScore:
    """Score the model ``vector`` ``[size]`` on one batch, with running statistics and without gradients.

    Every batch is scored on a copy of the model, so that no score depends on what a layer did with another batch.

    Args:
        vector: the model.
        place: which batch.
        model: the skeleton.
        data: where the batch comes from.
        mode: what differs from :data:`PLAIN`.

    Raises:
        WrittenInPlace: a layer wrote into the model.
    """
    with torch.no_grad(), using(**{**PLAIN, **mode}):
        batch = data.evaluation_batch(place)
        lent = Lent({EVALUATED: vector}, model.layout)
        logits = model.apply_blocks(model.layout.frozen(*model.layout.split(lent[EVALUATED])), batch.inputs)
        lent.check()
        right = (logits.argmax(dim=1) == batch.labels).sum()
        return BatchScore(right, F.cross_entropy(logits.double(), batch.labels, reduction="sum"), len(batch.labels))


def total(scores: Iterable[BatchScore]) -> Evaluation:
    """The evaluation that the batches add up to.

    Raises:
        ValueError: there is no image to evaluate on.
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
    """An exactly rounded sum; NaN or infinite where a term is (``fsum`` refuses inf - inf)."""
    try:
        return fsum(numbers)
    except (OverflowError, ValueError):
        return sum(numbers)
