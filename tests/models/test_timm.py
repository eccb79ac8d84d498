"""Models of timm by name."""

import pytest

from edgefl.cost.measure import measure
from edgefl.errors import UserError
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.models.registry import MODELS, build_model

pytestmark = pytest.mark.extras
timm = pytest.importorskip("timm", reason="timm is not installed: pip install 'edgefl[timm]'")


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


def test_published_macs_of_resnet18_are_counted():
    # At 224 pixels and 1,000 classes (timm's results table; He et al. 2016: 1.8 without the downsampling).
    model = built("resnet18", (3, 224, 224), 1000)
    cost = measure(model, build_method("fedavg", LocalOptions()), model.depth, 1)
    assert cost.layer_macs == pytest.approx(1.82e9, rel=0.01)


def test_arguments_change_the_model_and_may_not_read_files():
    assert built("resnet18", args={"in_chans": 3, "output_stride": 16}).depth == 6
    with pytest.raises(UserError, match=r"args: 'checkpoint_path' would read or download values"):
        built("resnet18", args={"checkpoint_path": "x.pth"})
    with pytest.raises(UserError, match=r"args: timm's resnet18 cannot be built"):
        built("resnet18", args={"depths": 3})


def test_an_unknown_name_is_refused_with_the_nearest_one():
    with pytest.raises(UserError, match=r"has no model 'resnet81'; did you mean 'resnet\d+'"):
        built("resnet81")
