"""The library's small models."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edgefl.cost.measure import measure
from edgefl.errors import UserError
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.models.registry import MODELS, build_model
from edgefl.models.slimmable import Pointwise, correct


def test_each_layer_is_a_block_and_the_output_is_the_perceptrons():
    model = build_model(MODELS["mlp"](widths=(5, 3)), (2, 4), 6)
    assert model.layout.block_names == ("fc1", "fc2", "fc3")
    first, second, last = (
        [tensor for _, tensor in sorted(block.named_parameters(), reverse=True)] for block in model.blocks.values()
    )
    inputs = torch.randn(7, 2, 4, generator=torch.Generator().manual_seed(0))
    hidden = (inputs.reshape(7, 8) @ first[0].T + first[1]).relu()
    hidden = (hidden @ second[0].T + second[1]).relu()
    torch.testing.assert_close(model(inputs), hidden @ last[0].T + last[1])
    tokens = torch.arange(16).view(2, 2, 4)
    assert torch.equal(model(tokens), model(tokens.float()))
    with pytest.raises(UserError, match="and this has none"):
        build_method("fedalign", LocalOptions()).objective.adapt(model)


def test_the_shapes_and_blocks_of_the_network_over_time():
    model = build_model(MODELS["cnn1d"](width=4, kernel=5), (3, 128), 7)
    assert model.layout.block_names == ("conv1", "conv2", "fc1", "fc2")
    assert model(torch.zeros(2, 3, 128)).shape == (2, 7)
    assert [tuple(shape) for shape in model.tap_shapes[:2]] == [(4, 32), (8, 8)]
    for shape in ((3, 15), (3, 32, 32)):
        with pytest.raises(UserError, match=r"takes \[channels, length\]"):
            build_model(MODELS["cnn1d"](), shape, 4)


@pytest.mark.parametrize(("channels", "side"), [(3, 7), (15, 8), (40, 8)])
def test_the_result_and_the_gradients_are_those_of_the_strided_convolution(channels, side):
    layer = nn.Sequential(nn.Conv2d(channels, 8, 1, stride=(2, 3)))
    reference = F.conv2d(images := torch.randn(2, channels, side, side), layer[0].weight, layer[0].bias, (2, 3))
    correct(layer)
    assert isinstance(layer[0], Pointwise)
    found = layer(images.to(memory_format=torch.channels_last))
    torch.testing.assert_close(found, reference)
    gradients = [torch.autograd.grad(each.square().sum(), list(layer.parameters())) for each in (found, reference)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "layer", [nn.Conv2d(4, 8, 3), nn.Conv2d(4, 8, 1, groups=4), nn.Conv2d(4, 8, 1, stride=2, padding=1)], ids=str
)
def test_other_convolutions_stay_as_they_are(layer):
    correct(layer)
    assert type(layer) is nn.Conv2d


pytestmark = pytest.mark.extras
timm = pytest.importorskip("timm", reason="timm is not installed: pip install -e '.[timm]'")


def built(name, shape=(3, 32, 32), classes=10, **options):
    return build_model(MODELS["timm"](timm=name, **options), shape, classes)


@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        ("resnet18", ["conv1", "layer1", "layer2", "layer3", "layer4", "fc"]),
        ("mobilenetv2_050", ["conv_stem", "blocks", "conv_head", "classifier"]),
        ("vit_tiny_patch16_224", ["patch_embed", "blocks", "head"]),
    ],
)
def test_a_model_is_split_and_counted(name, blocks):
    model = built(name)
    assert list(model.blocks) == blocks
    module = (
        timm.create_model(name, num_classes=10, img_size=32)
        if "vit" in name
        else timm.create_model(name, num_classes=10)
    )
    assert model.layout.parameter_count == sum(each.numel() for each in module.parameters())
    cost = measure(model, build_method("fedavg", LocalOptions()), model.depth, 2)
    assert cost.training_flops > 4 * cost.layer_macs  # forward and backward, two FLOPs each


def test_arguments_change_the_model_and_may_not_read_files():
    assert built("resnet18", args={"in_chans": 3, "output_stride": 16}).depth == 6
    with pytest.raises(UserError, match=r"args: 'checkpoint_path' would read or download values"):
        built("resnet18", args={"checkpoint_path": "x.pth"})
    with pytest.raises(UserError, match=r"args: timm's resnet18 cannot be built"):
        built("resnet18", args={"depths": 3})


def test_an_unknown_name_is_refused_with_the_nearest_one():
    with pytest.raises(UserError, match=r"has no model 'resnet81'; did you mean 'resnet\d+'"):
        built("resnet81")
