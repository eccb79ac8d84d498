"""Metric and loss of one model, batch by batch; the result does not depend on which worker computes which batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from edgefl.models.block_model import BlockModel
from edgefl.models.mode import using
from edgefl.tasks.base import Task
from edgefl.training.base import EvaluationData
from edgefl.training.device import exact_arithmetic
from edgefl.training.job import Evaluation

PLAIN = {"training": False, "track": False, "width": 1.0, "keep": None, "keep_probability": None, "unfolded": False}
PLAIN |= {"exits": None, "ensemble": False}
"""The mode of an evaluation, independent of the caller's mode; an objective may change parts of it."""

BATCH, DEVICE_BATCH = 128, 1024
"""Images in an evaluation batch on a CPU, with every engine, and on an accelerator, which a small batch leaves idle."""


def batch_on(device: torch.device) -> int:
    """Images in an evaluation batch on a device."""
    return BATCH if device.type == "cpu" else DEVICE_BATCH


class BatchScore(NamedTuple):
    """The sums of the task's scores of one batch, its summed loss, and the number of the loss's terms."""

    scores: tuple[float, ...]
    loss: float
    terms: int


def evaluate_batches(
    vector: Tensor, places: Sequence[slice], model: BlockModel, data: EvaluationData, mode: Mapping[str, Any]
) -> list[BatchScore]:
    """Score the model ``vector`` ``[size]`` on some batches, with running statistics and without gradients.

    The layers get a copy, so that none changes it for later calls. ``mode``: the differences from :data:`PLAIN`.
    """
    scores, losses, terms = [], [], []
    task = model.task
    with exact_arithmetic(vector.device), torch.no_grad(), using(**{**PLAIN, **mode}):
        weights = model.layout.frozen(*model.layout.split(vector.clone()))
        for place in places:
            batch = data.evaluation_batch(place)
            outputs = model.apply_blocks(weights, batch.inputs)
            scores.append(task.scores(outputs, batch.labels).sum(dim=0))
            loss, count = task.summed_loss(outputs, batch.labels)
            losses.append(loss)
            terms.append(torch.as_tensor(count, device=loss.device))
    if not terms:
        return []
    # One transfer for all batches: on an accelerator each .item() would wait for the device.
    sums = map(tuple, torch.stack(scores).tolist())
    return list(map(BatchScore, sums, torch.stack(losses).tolist(), torch.stack(terms).tolist()))


def total(scores: Sequence[BatchScore], task: Task) -> Evaluation:
    """The evaluation over all batches.

    Raises:
        ValueError: there are no labels.
    """
    terms = sum(score.terms for score in scores)
    if not terms:
        raise ValueError("the evaluation split is empty")
    sums = [_sum(list(column)) for column in zip(*(score.scores for score in scores), strict=True)]
    return Evaluation(task.measured.bounded(task.value(np.array(sums))), _sum([score.loss for score in scores]) / terms)


def _sum(numbers: list[float]) -> float:
    """An exactly rounded sum; NaN or infinite if a term is (``fsum`` raises an error for inf - inf)."""
    try:
        return fsum(numbers)
    except (OverflowError, ValueError):
        return sum(numbers)
