"""DepthFL against a computation of its paper's local step, aggregation and ensemble in float64."""

from __future__ import annotations

import math
from collections import defaultdict

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edgefl.errors import UserError
from edgefl.methods.build import build_method
from edgefl.methods.recipe import METHODS
from edgefl.models.block_model import BlockModel
from edgefl.models.mode import using
from edgefl.models.norm import BatchNorm
from edgefl.models.registry import initial_vector
from edgefl.models.slimmable import Conv2d, Linear
from edgefl.training.core import TrainingCore
from edgefl.training.job_task import JobTask

from ..training.conftest import SIZES
from .test_width_methods import LOCAL, PreciseData, by_name, check, cross_entropy, trained

LEVELS = (1.0, 0.67, 0.33)
"""Three, two and one of the three blocks before the classifier."""
ROUNDS = [{0: 0, 1: 1, 3: 2}, {1: 1, 2: 2}, {3: 2, 4: 2}, {0: 0, 5: 0}]


def model() -> BlockModel:
    blocks = {
        "first": nn.Sequential(Conv2d(1, 8, 3, bias=False), BatchNorm(8), nn.ReLU(), nn.MaxPool2d(2)),
        "second": nn.Sequential(Conv2d(8, 16, 3, bias=True), nn.ReLU()),
        "third": nn.Sequential(nn.Flatten(), Linear(144, 10), nn.ReLU()),
        "fourth": Linear(10, 3, slim_outputs=False),
    }
    return BlockModel(blocks, sample_shape=(1, 6, 6), classes=3, align_block=1)


def after_rounds(rounds: list[dict[int, int]], **options):
    """The model after rounds of clients with levels, the one that it began from, its layout and its last accuracy."""
    built = build_method({"method": "depthfl", "levels": list(LEVELS), **options}, LOCAL)
    with TrainingCore(PreciseData(), model(), 3, engine="sequential") as core:
        adapted = core._ready(built.objective.adapt(core.model), core.data)
        first = adapted.initial.double()
        core._adapted.append((built.objective, adapted._replace(initial=first)))
        return trained(core.learner(built), "depthfl", rounds, 6), first, adapted.model.layout


def means(maps, grid: int):
    """Of each channel in the cells of a grid; the last cells may be smaller."""
    side = -(-maps.shape[-1] // grid)
    starts = range(0, maps.shape[-1], side)
    cells = [maps[:, :, y : y + side, x : x + side].mean(dim=(2, 3)) for y in starts for x in starts]
    return torch.stack(cells, dim=2).flatten(1)


def classifiers(part, images, depth: int, grid: int, training: bool = True):
    """The outputs of the first classifiers; before training, the running statistics are 0 and 1."""
    maps = F.conv2d(images, part["first.0.weight"], padding=1)
    mean, var = maps.new_zeros(8), maps.new_ones(8)
    if training:
        mean, var = maps.mean(dim=(0, 2, 3)), maps.var(dim=(0, 2, 3), unbiased=False)
    maps = (maps - mean[:, None, None]) / (var[:, None, None] + 1e-5).sqrt()
    maps = F.max_pool2d((maps * part["first.1.weight"][:, None, None] + part["first.1.bias"][:, None, None]).relu(), 2)
    found = [means(maps, grid) @ part["exit1.layer.weight"].T + part["exit1.layer.bias"]]
    if depth > 1:
        maps = F.conv2d(maps, part["second.0.weight"], part["second.0.bias"], padding=1).relu()
        found.append(means(maps, grid) @ part["exit2.layer.weight"].T + part["exit2.layer.bias"])
    if depth > 2:
        hidden = (maps.flatten(1) @ part["third.1.weight"].T + part["third.1.bias"]).relu()
        found.append(hidden @ part["fourth.weight"].T + part["fourth.bias"])
    return found


OF_DEPTH = [
    ("first", "exit1"),
    ("first", "exit1", "second", "exit2"),
    ("first", "exit1", "second", "exit2", "third", "fourth"),
]


def expected(first, rounds, *, consistency=1.0, ramp=300, temperature=1.0, grid=4, uniform=True):
    """The paper's rounds on tensors by name."""
    whole = {name: tensor.clone() for name, tensor in first.items() if "running" not in name}
    dispatched, data = defaultdict(int), PreciseData()
    for round, levels in enumerate(rounds):
        weight = consistency * (math.exp(-5 * (1 - min((round + 1) / ramp, 1)) ** 2) if ramp else 1)
        trained = defaultdict(list)
        for client, level in levels.items():
            depth = 3 - level
            part = {
                name: tensor.clone().requires_grad_()
                for name, tensor in whole.items()
                if name.startswith(OF_DEPTH[depth - 1])
            }
            steps, dispatch = LOCAL.steps_for(SIZES[client]), dispatched[client]
            task = JobTask("", 3, client, round, dispatch, None, None, LOCAL, 0.1, steps, 6, None)
            dispatched[client] += 1
            for images, labels in data.batches(task):
                z = classifiers(part, images, depth, grid)
                loss = sum(cross_entropy(each, labels) for each in z)
                for i in range(depth):
                    for j in set(range(depth)) - {i}:
                        teacher = (z[j].detach() / temperature).softmax(dim=1)
                        gap = teacher.log() - (z[i] / temperature).log_softmax(dim=1)
                        loss = loss + weight * temperature**2 / (depth - 1) * (teacher * gap).sum(dim=1).mean()
                gradients = torch.autograd.grad(loss, list(part.values()))
                part = {
                    name: (tensor - 0.1 * gradient).detach().requires_grad_()
                    for (name, tensor), gradient in zip(part.items(), gradients, strict=True)
                }
            for name, tensor in part.items():
                trained[name].append((1 if uniform else SIZES[client], tensor.detach()))
        for name, each in trained.items():
            whole[name] = sum(share * tensor for share, tensor in each) / sum(share for share, _ in each)
    return whole


@pytest.mark.parametrize(
    "options",
    [{}, {"ramp": 3, "consistency": 0.7}, {"ramp": 0, "temperature": 2.0, "grid": 2}, {"consistency": 0.0, "grid": 1}],
)
def test_it_is_its_papers_local_steps_and_aggregation(options):
    found, first, layout = after_rounds(ROUNDS, **options)
    wanted = expected(by_name(first, layout), ROUNDS, **options)
    assert len(wanted) == len(layout.parameters)
    check(found, layout, wanted)


def test_clients_may_be_weighted_by_their_samples():
    found, first, layout = after_rounds(ROUNDS, weighting="samples")
    check(found, layout, expected(by_name(first, layout), ROUNDS, uniform=False))


def test_the_server_predicts_with_the_mean_of_all_classifiers():
    objective = METHODS["depthfl"].objective()
    adapted = objective.adapt(model())
    vector = initial_vector(adapted, 1).double()
    named = by_name(vector, adapted.layout)
    images = torch.randn(5, 1, 6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    each = classifiers(named, images, 3, 4, training=False)
    weights = adapted.layout.weights(*adapted.layout.split(vector))
    for ensemble, wanted in ((True, sum(each) / 3), (False, each[-1])):
        mode = METHODS["depthfl"].objective(ensemble=ensemble).evaluation_mode(adapted)
        with using(training=False, track=False, **mode):
            found = adapted.apply_blocks(weights, images)
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("blocks", "said"),
    [
        ({"body": nn.Flatten(), "end": Linear(36, 3)}, "three or more blocks, and this model has 2"),
        ({"a": nn.Flatten(1, 2), "b": nn.Flatten(), "end": Linear(36, 3)}, "block 'a' has the shape"),
    ],
)
def test_models_that_have_no_such_parts_are_refused_by_name(blocks, said):
    refused = BlockModel(blocks, sample_shape=(1, 6, 6), classes=3, align_block=1)
    with pytest.raises(UserError, match=said):
        METHODS["depthfl"].objective().adapt(refused)
