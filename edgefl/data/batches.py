"""The minibatches of a training job; they are determined before it starts and do not depend on the method."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from edgefl.data.augment import Augmentation, augment_draws, augmented, uploaded
from edgefl.data.dataset import Dataset
from edgefl.data.sharding import Integers
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.objective import Batch
from edgefl.randomness import generator

FLOAT_BYTES = 4
"""Bytes of a normalised pixel or a number."""


def batch_plan(
    shard: Integers, options: LocalOptions, steps: int, *, seed: int, client: int, dispatch: int
) -> list[Integers]:
    """The positions of the images in each of a job's local ``steps``.

    Every pass over the shard, positions in the training set, is a new permutation, split into batches of
    ``options.batch``, of which a step takes ``options.accumulate``, the last step of a pass those that are left. The
    last, incomplete batch of a pass is kept, unless ``drop_last`` is set and the shard fills at least one batch. A job
    longer than a pass continues with the next one. The random key is the seed, the client and the index ``dispatch`` of
    its job, from 0, without the method. With Poisson sampling each step draws each image with probability batch / n_k.

    Raises:
        ValueError: the shard is empty.

    >>> [batch.tolist() for batch in batch_plan(np.arange(5), LocalOptions(batch=2), 4, seed=0, client=0, dispatch=0)]
    [[4, 3], [0, 1], [2], [1, 2]]
    """
    if len(shard) == 0 and steps > 0:
        raise ValueError(f"client {client} has no images to train on")
    rng = generator(seed, "batches", client, dispatch)
    size, (whole, rest) = options.step_samples, options.a_pass(len(shard))
    if options.poisson:
        return [shard[rng.random(len(shard)) < size / len(shard)] for _ in range(steps)]
    plan: list[Integers] = []
    while len(plan) < steps:
        shuffled = rng.permutation(shard)[: whole * size + rest]
        count = min(whole + (rest > 0), steps - len(plan))
        plan += [shuffled[step * size : (step + 1) * size] for step in range(count)]
    return plan


@dataclass(frozen=True, slots=True)
class JobBatches:
    """The random choices of a job's minibatches, in main memory; :meth:`step` returns one minibatch."""

    data: Dataset
    indices: Tensor  # positions of all images of all steps, one step after the other
    offsets: tuple[int, ...]  # step i has the positions offsets[i] to offsets[i + 1]
    draws: Tensor | None  # the augmentation of each of these images, [3 or 5, images]; None without augmentation

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def step(self, step: int) -> Batch:
        """The minibatch of one local step, augmented and normalised."""
        return self._between(self.offsets[step], self.offsets[step + 1])

    def in_turn(self) -> Iterator[Batch]:
        """The minibatches of all local steps in order, equal to :meth:`step`, but several are gathered at a time."""
        job = replace(  # one copy for all steps
            self,
            indices=uploaded(self.indices, self.data.store),
            draws=None if self.draws is None else uploaded(self.draws, self.data.device),
        )
        offsets, first = self.offsets, 0
        # Images at a time: few calls for small images, and on a CPU not more than fits in its caches.
        most = (1 << (20 if self.data.device.type == "cpu" else 22)) // (FLOAT_BYTES * self.data.inputs[0].numel())
        while first < len(self):
            # As many complete steps as fit in that many images, at least one.
            last = max(first + 1, bisect_right(offsets, offsets[first] + most) - 1)
            images, labels = job._between(offsets[first], offsets[last])
            for start, stop in pairwise(offset - offsets[first] for offset in offsets[first : last + 1]):
                yield Batch(images[start:stop], labels[start:stop])
            first = last

    def _between(self, start: int, stop: int) -> Batch:
        draws = None if self.draws is None else self.draws[:, start:stop]
        return fetch(self.data, self.indices[start:stop], draws)


@dataclass(frozen=True, slots=True)
class StackedBatches:
    """The minibatches of several jobs with equal numbers of steps and images; row i belongs to the i-th job."""

    data: Dataset
    indices: Tensor  # positions of the images, [steps, rows, batch]
    draws: Tensor | None  # the augmentation of these images in that order; None without augmentation

    @classmethod
    def of(cls, jobs: Sequence[JobBatches]) -> StackedBatches | None:
        """The stacked minibatches of the jobs; ``None`` if jobs differ in steps or in a step's images."""
        first = jobs[0]
        size = first.offsets[1] if len(first) else 0
        if any(job.offsets != first.offsets for job in jobs) or first.offsets[-1] != size * len(first):
            return None
        indices = torch.stack([job.indices.view(-1, size) for job in jobs], dim=1)
        draws = None
        if first.draws is not None:
            places = torch.arange(len(jobs) * first.offsets[-1])
            order = places.view(len(jobs), -1, size).transpose(0, 1).reshape(-1)
            draws = torch.cat([job.draws for job in jobs if job.draws is not None], dim=1)[:, order]
            draws = uploaded(draws, first.data.device)
        return cls(first.data, uploaded(indices, first.data.store), draws)

    def step(self, step: int) -> Batch:
        """The minibatches of one local step, ``[rows, batch, ...]``, with the same numbers as for each job alone."""
        places = self.indices[step]
        count = places.numel()
        draws = None if self.draws is None else self.draws[:, step * count : (step + 1) * count]
        inputs, labels = fetch(self.data, places.view(-1), draws)
        return Batch(inputs.view(*places.shape, *inputs.shape[1:]), labels.view(*places.shape, *labels.shape[1:]))


def job_batches(
    data: Dataset,
    augment: Augmentation,
    shard: Integers,
    options: LocalOptions,
    steps: int,
    *,
    seed: int,
    client: int,
    dispatch: int,
) -> JobBatches:
    """The minibatches of one job: :func:`batch_plan` and the random numbers for augmenting every image."""
    plan = batch_plan(shard, options, steps, seed=seed, client=client, dispatch=dispatch)
    offsets = (0, *np.cumsum([len(batch) for batch in plan]).tolist())
    draws = augment_draws(augment, generator(seed, "augment", client, dispatch), offsets[-1])
    indices = torch.from_numpy(np.concatenate(plan) if plan else np.zeros(0, dtype=np.int64))
    return JobBatches(data, indices, offsets, draws)


def fetch(data: Dataset, indices: Tensor | Integers, draws: Tensor | None = None) -> Batch:
    """The samples at positions ``[batch]``: augmented images as normalised float32, numbers unchanged, tokens as int64.

    The memory format of images is :data:`IMAGE_ORDER`. Positions are best where the inputs are stored.

    >>> data = Dataset(torch.full((1, 1, 2, 2), 255, dtype=torch.uint8), torch.tensor([3]), 10, (0.5,), (0.25,))
    >>> fetch(data, np.array([0, 0])).inputs.flatten().tolist()
    [2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]
    """
    positions = uploaded(indices if isinstance(indices, Tensor) else torch.from_numpy(indices), data.store)
    images = data.inputs.index_select(0, positions)
    if data.store != data.device:
        # From pinned memory the copy does not wait, so the device trains on earlier batches meanwhile.
        images = images.pin_memory().to(data.device, non_blocking=True)
        positions = positions.to(data.device)
    if draws is not None:
        images = augmented(images, uploaded(draws, data.device))
    return Batch(_normalised(images, data), data.labels.index_select(0, positions))


def _normalised(inputs: Tensor, data: Dataset) -> Tensor:
    """(x/255 − mean)/std of images, as one multiplication and one addition; other inputs keep their values."""
    if not data.mean:
        numbers = inputs.is_floating_point()
        order = IMAGE_ORDER if numbers and inputs.dim() == 4 else torch.preserve_format
        return inputs.to(torch.float32 if numbers else torch.int64, memory_format=order)
    scale, shift = _scale_and_shift(data.mean, data.std, inputs.device)
    return inputs.to(torch.float32, memory_format=IMAGE_ORDER).mul_(scale).add_(shift)


IMAGE_ORDER = torch.channels_last
"""The memory format of images ``[batch, channels, height, width]`` in a model, on every device.

It is that of the weights of convolutions (:mod:`edgefl.models.layout`), which would otherwise be converted in every
call. On a CPU, pooling and convolutions vectorise over channels, and the layers keep the format, so it is enough to set
it for the images (the small CNN's step takes two thirds of the time). With one channel, both formats have the same
memory, and only the strides tell the layers which format is used.
"""


@lru_cache(maxsize=16)
def _scale_and_shift(mean: tuple[float, ...], std: tuple[float, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """1/(255·std) and −mean/std, rounded once, ``[1, channels, 1, 1]``."""
    means, deviations = (torch.tensor(values, dtype=torch.float64).view(1, -1, 1, 1) for values in (mean, std))
    return (1 / (255 * deviations)).to(device, torch.float32), (-means / deviations).to(device, torch.float32)
