"""FLOPs and bytes of narrower networks, counted by hand."""

import pytest

from edgefl.cost.law import CostModel
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.models.registry import MODELS, build_model

WIDTH, CLASSES, BATCH = 8, 10, 6
"""Channels of the first layer of the model cnn, on images of 28 by 28."""


def macs(share: float) -> int:
    """Products of a forward pass on one image: two 5×5 convolutions with pooling after each, two linear layers."""
    one, two, three = (int(share * each) for each in (WIDTH, 2 * WIDTH, 4 * WIDTH))
    first, second = LAYERS["conv1"], LAYERS["conv2"]
    return first[0] * one * first[1] + second[0] * one * two * second[1] + 49 * two * three + three * CLASSES


def parameters(share: float) -> int:
    one, two, three = (int(share * each) for each in (WIDTH, 2 * WIDTH, 4 * WIDTH))
    kernel = LAYERS["conv1"][0]
    return (kernel + 1) * one + (kernel * one + 1) * two + (49 * two + 1) * three + (three + 1) * CLASSES


MODEL = build_model(MODELS["cnn"](width=WIDTH), (1, 28, 28), CLASSES)
KERNEL = MODEL.layout.parameters[0].shape[-1]
LAYERS = {"conv1": (KERNEL**2, 28 * 28), "conv2": (KERNEL**2, 14 * 14)}


def step(name: str, level: int, **options):
    method = build_method({"method": name, "levels": [1.0, 0.5, 0.25], **options}, LocalOptions(batch=BATCH))
    part = method.submodels.part(MODEL, level)
    return part.model, CostModel(part.model).cost(method, MODEL.depth, BATCH)


@pytest.mark.parametrize(("name", "level", "share"), [("heterofl", 1, 0.5), ("fedrolex", 2, 0.25)])
def test_a_part_has_the_parameters_and_products_by_hand(name, level, share):
    model, cost = step(name, level)
    assert model.layout.size == parameters(share)
    assert sum(model.layout.block_bytes()) == 4 * parameters(share)
    assert cost.layer_macs == BATCH * macs(share)


def test_a_part_needs_less_memory_and_fewer_flops():
    whole, half, quarter = (step("heterofl", level)[1] for level in range(3))
    assert whole.peak_memory_bytes > half.peak_memory_bytes > quarter.peak_memory_bytes
    # Convolutions and linear layers dominate, and three of four products are left out.
    assert 3 < whole.training_flops / half.training_flops < 4


def test_the_scaler_costs_one_division_for_each_output():
    with_scaler, without = (step("heterofl", 1, scaler=scaler)[1] for scaler in (True, False))
    outputs = BATCH * (WIDTH // 2 * 784 + WIDTH * 196 + 2 * WIDTH)
    # One division forward and one backward.
    assert with_scaler.training_flops - without.training_flops == 2 * outputs


@pytest.mark.parametrize("distill", [False, True])
def test_fjord_s_step_is_the_mean_over_its_widths(distill):
    shares, total = (1.0, 0.5, 0.25), 0.0
    for share in shares:
        narrower = share if share < 1 or not distill else 0
        total += BATCH * (macs(1.0) * distill + (macs(narrower) if narrower else 0))
    assert step("fjord", 0, distill=distill)[1].layer_macs == round(total / 3)


def test_fjord_s_smallest_level_costs_what_fedavg_s_smallest_network_does():
    fjord, plain = step("fjord", 2)[1], step("fedrolex", 2)[1]
    assert fjord.training_flops == plain.training_flops
    assert fjord.peak_memory_bytes == plain.peak_memory_bytes + 4  # the drawn number
