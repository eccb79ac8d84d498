"""FLOPs and bytes of parts of a model, counted by hand: the first blocks, and narrower networks."""

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


def macs(share: float) -> int:
    """Products of a forward pass on one image: two 5×5 convolutions with pooling after each, two linear layers."""
    one, two, three = (int(share * each) for each in (WIDTH, 2 * WIDTH, 4 * WIDTH))
    first, second = LAYERS["conv1"], LAYERS["conv2"]
    return first[0] * one * first[1] + second[0] * one * two * second[1] + 49 * two * three + three * CLASSES


def narrow_parameters(share: float) -> int:
    one, two, three = (int(share * each) for each in (WIDTH, 2 * WIDTH, 4 * WIDTH))
    kernel = LAYERS["conv1"][0]
    return (kernel + 1) * one + (kernel * one + 1) * two + (49 * two + 1) * three + (three + 1) * CLASSES


KERNEL = MODEL.layout.parameters[0].shape[-1]
LAYERS = {"conv1": (KERNEL**2, 28 * 28), "conv2": (KERNEL**2, 14 * 14)}


def narrowed(name: str, level: int, **options):
    method = build_method({"method": name, "levels": [1.0, 0.5, 0.25], **options}, LocalOptions(batch=BATCH))
    part = method.submodels.part(MODEL, level)
    return part.model, CostModel(part.model).cost(method, MODEL.depth, BATCH)


@pytest.mark.parametrize(("name", "level", "share"), [("heterofl", 1, 0.5), ("fedrolex", 2, 0.25)])
def test_a_narrower_part_has_the_parameters_and_products_by_hand(name, level, share):
    model, cost = narrowed(name, level)
    assert model.layout.size == narrow_parameters(share)
    assert sum(model.layout.block_bytes()) == 4 * narrow_parameters(share)
    assert cost.layer_macs == BATCH * macs(share)


def test_the_scaler_costs_one_division_for_each_output():
    with_scaler, without = (narrowed("heterofl", 1, scaler=scaler)[1] for scaler in (True, False))
    outputs = BATCH * (WIDTH // 2 * 784 + WIDTH * 196 + 2 * WIDTH)
    # One division forward and one backward.
    assert with_scaler.training_flops - without.training_flops == 2 * outputs


@pytest.mark.parametrize("distill", [False, True])
def test_fjord_s_step_is_the_mean_over_its_widths(distill):
    shares, total = (1.0, 0.5, 0.25), 0.0
    for share in shares:
        narrower = share if share < 1 or not distill else 0
        total += BATCH * (macs(1.0) * distill + (macs(narrower) if narrower else 0))
    assert narrowed("fjord", 0, distill=distill)[1].layer_macs == round(total / 3)


def test_fjord_s_smallest_level_costs_what_fedavg_s_smallest_network_does():
    fjord, plain = narrowed("fjord", 2)[1], narrowed("fedrolex", 2)[1]
    assert fjord.training_flops == plain.training_flops
    assert fjord.peak_memory_bytes == plain.peak_memory_bytes + 4  # the drawn number
