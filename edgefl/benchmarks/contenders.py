"""The contenders: an engine that trains a cohort, and plain centralised training of the same network."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from edgefl.benchmarks.cases import TrainingCase
from edgefl.data.batches import fetch
from edgefl.data.federated import FederatedData
from edgefl.methods.precision import Precision, computing
from edgefl.methods.recipe import Method
from edgefl.models.block_model import BlockModel
from edgefl.training.core import TrainingCore
from edgefl.training.device import exact_arithmetic
from edgefl.training.job import JobId, TrainingJob
from edgefl.training.processors import cores

Turn = Callable[[], None]
"""Does the work of one round."""


def federated(case: TrainingCase, core: TrainingCore, method: Method) -> Turn:
    """Rounds of a method through the core's engine, aggregation included, each with the next cohort."""
    learner = core.learner(method)
    depth = method.objective.adapt(core.model).depth
    last: dict[int, JobId] = {}
    numbers = iter(range(2**31))

    def turn() -> None:
        round = next(numbers)
        cohort = [(round * case.cohort + place) % case.clients for place in range(case.cohort)]
        ids = [JobId(method.label, 0, client, round) for client in cohort]
        for id in ids:
            previous = last.get(id.client) if method.state is not None else None
            learner.submit(TrainingJob(id, round, round, depth, case.steps, previous))
            last[id.client] = id
        learner.aggregate(round, ids, round)

    return turn


def centralised(  # noqa: PLR0917  (they come in the order of use)
    case: TrainingCase,
    data: FederatedData,
    model: BlockModel,
    method: Method,
    batch: int,
    precision: Precision = "float32",
) -> Turn:
    """The same number of images in one plain training loop, with ``torch.optim.SGD``, channels-last, on all cores.

    On an accelerator it has the settings of the engines: deterministic kernels and float32 products.

    Args:
        case: defines the number of images.
        data: the images.
        model: copied; its own tensors are trained.
        method: provides the local options.
        batch: images in a minibatch.
        precision: of the products, as in an engine.
    """
    net, local = copy.deepcopy(model).to(data.train.device), method.local
    net.to(memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(
        net.parameters(), lr=local.lr, momentum=local.momentum, weight_decay=local.weight_decay, fused=True
    )
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(data.train))).to(data.train.device)
    starts = iter(_places(len(order), batch))

    def turn() -> None:
        with exact_arithmetic(data.train.device), all_cores():
            for _ in range(case.images // batch):
                start = next(starts)
                _step(net, optimiser, data, order[start : start + batch], local.clip_norm, precision)

    return turn


def _step(  # noqa: PLR0917  (they come in the order of use)
    net: BlockModel,
    optimiser: torch.optim.Optimizer,
    data: FederatedData,
    places: Tensor,
    clip_norm: float | None,
    precision: Precision,
) -> None:
    images = fetch(data.train, places)
    optimiser.zero_grad()
    with computing(precision, places.device):
        loss = F.cross_entropy(net(images.inputs), images.labels)
    torch.autograd.backward(loss)
    if clip_norm is not None:
        torch.nn.utils.clip_grad_norm_(net.parameters(), clip_norm, foreach=True)
    optimiser.step()


def _places(images: int, batch: int) -> Iterator[int]:
    while True:
        yield from range(0, images - batch + 1, batch)


@contextmanager
def all_cores() -> Iterator[None]:
    """Run the block with as many intra-op threads as there are cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(cores())
    try:
        yield
    finally:
        torch.set_num_threads(before)
