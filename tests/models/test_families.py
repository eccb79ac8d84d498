"""One network of each family of torchvision and timm trains, whole and by blocks: ``pytest -m release FILE``."""

import math

import pytest
import torch

from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.local_step import local_step
from edgefl.methods.parts.objective import Batch, Context
from edgefl.models.mode import using
from edgefl.models.random_layers import KEY
from edgefl.models.registry import MODELS, build_model, initial_vector
from edgefl.training.self_test import check_module

BLOCKS = {
    "torchvision": {
        "alexnet": 2, "convnext_tiny": 2, "densenet121": 2, "efficientnet_b0": 2, "maxvit_t": 6, "mnasnet0_5": 2,
        "mobilenet_v2": 2, "mobilenet_v3_small": 2, "regnet_x_400mf": 3, "resnet18": 6, "resnext50_32x4d": 6,
        "shufflenet_v2_x0_5": 6, "squeezenet1_1": 2, "swin_t": 2, "swin_v2_t": 2, "vgg11": 2, "vit_b_32": 3,
        "wide_resnet50_2": 6,
    },
    "timm": {
        "convnext_atto": 3, "cspresnet50": 3, "darknet53": 3, "deit_tiny_patch16_224": 3, "dla34": 8,
        "edgenext_xx_small": 3, "efficientnet_lite0": 4, "fastvit_t8": 7, "ghostnet_100": 4, "hardcorenas_a": 4,
        "hrnet_w18_small": 6, "lcnet_050": 4, "levit_128s": 3, "mixer_s32_224": 3, "mobilenetv4_conv_small": 4,
        "pit_ti_224": 2, "poolformer_s12": 3, "regnety_002": 6, "resmlp_12_224": 4, "resnet10t": 6,
        "semnasnet_050": 4, "tinynet_e": 4, "vit_tiny_patch16_224": 3, "xcit_nano_12_p16_224": 4,
    },
}  # fmt: skip
"""The number of blocks of each, at 64 pixels, or 224 for those of one size."""
pytestmark = pytest.mark.extras
NAMES = [(library, name) for library, names in BLOCKS.items() for name in names]


@pytest.mark.release
@pytest.mark.parametrize(("library", "name"), NAMES)
def test_a_family_trains_whole_and_by_blocks(library, name):
    if library == "timm":
        pytest.importorskip("timm", reason="timm is not installed: python -m pip install -e '.[timm]'")
    side = 224 if "224" in name or name in ("maxvit_t", "vit_b_32", "levit_128s") else 64
    spec = MODELS[library](**{library: name})
    model, shapes = (build_model(spec, (3, side, side), 10, numbers=each) for each in (True, False))
    assert (model.depth, model.whole) == (BLOCKS[library][name], None)
    assert (shapes.layout.block_bytes(), shapes.numbers) == (model.layout.block_bytes(), False)
    options = LocalOptions(lr=0.01, batch=2)
    check_module(model, options)
    vector, draw = initial_vector(model, 0), torch.Generator().manual_seed(0)
    batch = Batch(torch.randn(2, 3, side, side, generator=draw), torch.tensor([3, 7]))
    for kind in ("fedavg", "fedmlb"):
        method, layout = build_method(kind, options), model.layout
        frozen = {each: layout.frozen(*layout.split(vector.clone())) for each in method.objective.frozen}
        context = Context(model, frozen, {}, {}, model.depth, {KEY: torch.tensor(1)})
        with using(training=True):
            parameters, buffers = (each.clone() for each in layout.split(vector))
            after, loss = local_step(
                method.objective, method.rule, parameters, buffers, batch, context, {}, options, 0.01
            )
        assert math.isfinite(loss.total)
        assert not torch.equal(after, layout.split(vector)[0])
