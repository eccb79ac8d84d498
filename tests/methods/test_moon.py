"""MOON against its formula, and where its term must vanish."""

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

from edgefl.errors import UserError
from edgefl.methods.fedavg import CrossEntropy
from edgefl.methods.moon import Moon
from edgefl.models.block_model import BlockModel
from edgefl.models.classifier import ending_in
from edgefl.models.registry import MODELS, build_model, initial_vector


@pytest.fixture
def contrast(bench):
    """The bench with a projection head of four numbers."""
    bench.model = Moon(projection=4).adapt(bench.model)
    draws = torch.Generator().manual_seed(11)

    def vector(scale):
        return scale * torch.randn(bench.model.layout.parameter_count, generator=draws, dtype=torch.float64)

    bench.received = vector(0.3)
    bench.local, bench.previous = bench.received + vector(0.1), bench.received + vector(0.1)
    return bench


def test_the_head_stands_between_features_and_classifier() -> None:
    plain = build_model(MODELS["resnet18"](), (3, 32, 32), 10)
    model = Moon().adapt(plain)
    assert model.layout.block_names == ("conv1", "layer1", "layer2", "layer3", "layer4", "projection", "fc")
    added = 512 * 512 + 512 + 512 * 256 + 256 + 256 * 10 + 10 - (512 * 10 + 10)
    assert model.layout.parameter_count - plain.layout.parameter_count == added
    # The shared front starts where every other method starts.
    front = sum(plain.layout.before(plain.depth - 1))
    assert torch.equal(initial_vector(model, 0)[:front], initial_vector(plain, 0)[:front])


@pytest.mark.parametrize(
    ("name", "features"),
    [
        ("cnn", 64), ("resnet56", 256), ("squeezenet", 512),
        pytest.param("fedadc_cnn", 1024, marks=pytest.mark.full),
        pytest.param("mobilenet_v2", 1280, marks=pytest.mark.full), pytest.param("vgg9", 512, marks=pytest.mark.full),
    ],
)  # fmt: skip
def test_in_every_network_the_head_reads_what_the_last_layer_read(name, features) -> None:
    plain = build_model(MODELS[name](), (1, 16, 16), 5)
    model = Moon(projection=7).adapt(plain)
    added = (features + 1) * features + (features + 1) * 7 + 8 * 5 - (features + 1) * 5
    assert model.layout.parameter_count - plain.layout.parameter_count == added
    assert model.tap_shapes[-2:] == ((7,), (5,))
    # All that stood before the last layer is there still, with the numbers that it had.
    *_, last = plain.blocks.values()
    kept = dict(ending_in(last, lambda found: nn.Identity()).named_parameters())
    there = dict(model.blocks["projection"].named_parameters())
    assert all(torch.equal(there[name], kept[name]) for name in kept)
    assert len(there) == len(kept) + 4


def test_the_head_takes_the_place_of_the_last_layer_of_a_traced_block() -> None:
    block = fx.symbolic_trace(nn.Sequential(nn.Flatten(), nn.Linear(18, 3)))
    assert ending_in(block, nn.LayerNorm)(torch.zeros(5, 2, 3, 3)).shape == (5, 18)
    with pytest.raises(TypeError, match="does not end with a linear layer"):
        ending_in(fx.symbolic_trace(nn.Sequential(nn.Linear(18, 3), nn.ReLU())), nn.LayerNorm)


def test_in_place_of_the_plain_cnn_s_linear_layers_the_head_reads_the_mean_of_each_map() -> None:
    """FedADC's comparison: five linear layers become an average, a head of two and the last one."""
    plain = build_model(MODELS["fedadc_cnn"](), (3, 32, 32), 10)
    model = Moon(reads="maps").adapt(plain)
    assert model.layout.block_names == ("conv1", "conv2", "conv3", "conv4", "projection", "fc5")
    convolutions = 64 * 28 + 128 * (9 * 64 + 1) + 256 * (9 * 128 + 1) + 512 * (9 * 256 + 1)
    head = 512 * 513 + 256 * 513 + 10 * 257
    assert model.layout.parameter_count == convolutions + head
    vector = initial_vector(model, 3)
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(4))
    blocks = model.layout.weights(*model.layout.split(vector))
    with torch.no_grad():
        x = images
        for block in blocks[:4]:
            x = F.max_pool2d(F.conv2d(x, block["0.weight"], block["0.bias"], padding=1), 2).relu()
        first, second = (sorted(name for name in blocks[4] if name.endswith(kind)) for kind in ("weight", "bias"))
        z = x.mean(dim=(2, 3)) @ blocks[4][first[0]].T + blocks[4][second[0]]
        z = z.relu() @ blocks[4][first[1]].T + blocks[4][second[1]]
        torch.testing.assert_close(model.apply_blocks(blocks, images, stop=5), z)


def test_a_model_of_ones_own_whose_end_is_no_linear_layer_is_refused() -> None:
    with pytest.raises(UserError, match="returns feature maps"):
        Moon(reads="maps").adapt(build_model(MODELS["mlp"](), (1, 8, 8), 3))
    blocks = {"first": nn.Conv2d(1, 3, 3), "last": nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())}
    model = BlockModel(blocks, sample_shape=(1, 8, 8), classes=3, align_block=1)
    with pytest.raises(UserError, match=r"before a linear last layer; the model's Flatten does not end with a linear"):
        Moon().adapt(model)


def test_at_a_client_s_first_participation_the_term_has_no_gradient(contrast) -> None:
    contrast.previous = contrast.received
    assert torch.equal(contrast.gradient(Moon(mu=5.0)), contrast.gradient(CrossEntropy()))
