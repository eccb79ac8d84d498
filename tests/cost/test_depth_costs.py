"""FLOPs and bytes of the first blocks of a model with their classifiers, counted by hand."""

import pytest

from edgefl.cost.law import CostModel
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.models.registry import MODELS, build_model

WIDTH, CLASSES, BATCH = 8, 10, 6
MODEL = build_model(MODELS["cnn"](width=WIDTH), (1, 28, 28), CLASSES)
"""Two convolutions of 3×3 with pooling after each, a hidden layer of 4 WIDTH, and the classifier."""


def parameters(blocks: int, cells: int) -> int:
    """Those of the first blocks, each with its classifier, which reads so many means of each channel."""
    one = (9 + 1) * 8 + (8 * cells + 1) * 10
    two = (9 * 8 + 1) * 16 + (16 * cells + 1) * 10
    three = (49 * 16 + 1) * 32 + (32 + 1) * 10
    return sum([one, two, three][:blocks])


def products(blocks: int, cells: int) -> int:
    """Those of a forward pass on one image."""
    one = 784 * 9 * 8 + 8 * cells * 10
    two = 196 * 9 * 8 * 16 + 16 * cells * 10
    three = 49 * 16 * 32 + 32 * 10
    return sum([one, two, three][:blocks])


def step(level: int, **options):
    method = build_method({"method": "depthfl", "levels": [1, 0.67, 0.34], **options}, LocalOptions(batch=BATCH))
    adapted = method.objective.adapt(MODEL)
    part = method.submodels.part(adapted, level)
    return part.model, CostModel(part.model).cost(method, adapted.depth, BATCH)


@pytest.mark.parametrize(("level", "blocks", "grid", "cells"), [(0, 3, 4, 16), (1, 2, 1, 1), (2, 1, 4, 16)])
def test_a_part_has_the_parameters_and_products_by_hand(level, blocks, grid, cells):
    """The grids are of maps of 14×14 and of 7×7."""
    model, cost = step(level, grid=grid)
    assert model.depth == 2 * blocks
    assert model.layout.size == parameters(blocks, cells)
    assert sum(model.layout.block_bytes()) == 4 * parameters(blocks, cells)
    assert cost.layer_macs == BATCH * products(blocks, cells)


def test_a_smaller_part_needs_less_memory_and_fewer_flops():
    whole, two, one = (step(level)[1] for level in range(3))
    assert whole.peak_memory_bytes > two.peak_memory_bytes > one.peak_memory_bytes
    assert whole.training_flops > two.training_flops > one.training_flops

    # The smallest part has nothing to distil.
    assert one.training_flops == step(2, consistency=0)[1].training_flops
    assert two.training_flops > step(1, consistency=0)[1].training_flops
