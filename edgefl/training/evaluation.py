"""Metric and loss of one model, batch by batch; the result does not depend on which worker computes which batch."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import fsum, nan
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from edgefl.methods.parts.local_options import LocalOptions
from edgefl.models.block_model import BlockModel
from edgefl.models.layout import Weights
from edgefl.models.mode import Mode, using
from edgefl.models.random_layers import KEY, drawn_from
from edgefl.tasks.base import Task
from edgefl.training.engine_spec import exact_arithmetic
from edgefl.training.job import Evaluation
from edgefl.training.job_task import EvaluatedSamples, JobResult

PLAIN = asdict(Mode(training=False, track=False))
"""The mode of an evaluation, independent of the caller's mode; an objective may change parts of it."""


class BatchScore(NamedTuple):
    """The sums of the task's scores of one batch, its summed loss, and the number of the loss's terms."""

    scores: tuple[float, ...]
    loss: float
    terms: int


def evaluate_batches(
    vector: Tensor, places: Sequence[slice], model: BlockModel, data: EvaluatedSamples, mode: Mapping[str, Any]
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
            outputs = outputs_of(model, weights, batch.inputs, place.start)
            scores.append(task.scores(outputs, batch.labels).sum(dim=0))
            loss, count = task.summed_loss(outputs, batch.labels)
            losses.append(loss)
            terms.append(torch.as_tensor(count, device=loss.device))
    if not terms:
        return []
    # One transfer for all batches: on an accelerator each .item() would wait for the device.
    sums = map(tuple, torch.stack(scores).tolist())
    return list(map(BatchScore, sums, torch.stack(losses).tolist(), torch.stack(terms).tolist()))


def outputs_of(model: BlockModel, weights: Weights, inputs: Tensor, first: int) -> Tensor:
    """The outputs of a model for a batch of which ``first`` is the place of the first sample.

    Layers that draw random numbers in evaluation too draw them from this place, so an evaluation repeats.
    """
    draws = {KEY: torch.tensor(first, device=inputs.device)} if model.random else {}
    with drawn_from(draws):
        return model.apply_blocks(weights, inputs)


def total(scores: Sequence[BatchScore], task: Task) -> Evaluation:
    """The evaluation over all batches."""
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
    if not any(sizes):
        return 0.0 if sizes else nan  # of batches that are all empty
    return _sum([loss * size for loss, size in zip(losses, sizes, strict=True)]) / sum(sizes)
