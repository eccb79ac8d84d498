"""Pretrained weights from a file are the first server model; a file of another model is refused in one sentence."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from edgefl.errors import UserError
from edgefl.experiment.final_models import read_model, write_model
from edgefl.models.ordinary import OrdinaryModel
from edgefl.models.registry import MODELS, build_model, initial_vector

SHAPE = (1, 4, 4)


class Net(nn.Module):
    """Batch norm with its counter, a table of indices, a tied weight, and a layer that is never called."""

    def __init__(self, classes=3):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.first, self.second = nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False)
        self.second.weight = self.first.weight
        self.unused = nn.Linear(2, 2)
        self.head = nn.Linear(64, classes)
        self.register_buffer("order", torch.arange(classes))

    def forward(self, inputs):
        features = self.norm(self.stem(inputs)).flatten(1)
        return self.head(self.second(self.first(features).relu()))[:, self.order]


class Ordinary(OrdinaryModel):
    def module(self, sample_shape, classes):
        return Net(classes)


def state_of(seed=5, classes=3):
    torch.manual_seed(seed)
    net = Net(classes)
    with torch.no_grad():
        net.norm.running_mean.normal_()
        net.order.copy_(torch.arange(classes).flip(0))
    return net


def built(spec=Ordinary, shape=SHAPE, classes=3, **options):
    return build_model(spec(**options), shape, classes)


def values(model, seed=0):
    weights = model.layout.weights(*model.layout.split(initial_vector(model, seed)))
    return {name: tensor for block in weights for name, tensor in block.items()}


@pytest.fixture
def file(tmp_path):
    def saved(state, name="net.pt"):
        torch.save(state, tmp_path / name)
        return str(tmp_path / name)

    return saved


@pytest.mark.parametrize("ending", ["net.pt", "net.safetensors"])
def test_a_state_dict_is_the_first_model_of_every_seed(file, tmp_path, ending):
    net = state_of()
    if ending.endswith("safetensors"):
        state = {name: tensor for name, tensor in net.state_dict().items() if name != "second.weight"}
        save_file(state, tmp_path / ending)
        path = str(tmp_path / ending)
    else:
        path = file(net.state_dict(), ending)
    model, images = built(weights=path), torch.randn(2, *SHAPE)
    for seed in (0, 7):
        for name, tensor in values(model, seed).items():
            assert torch.equal(tensor, net.state_dict()[name]), name
    assert torch.equal(model.eval()(images), net.eval()(images))  # the table of indices too


def test_frozen_parts_have_the_files_values_and_those_that_are_skipped_their_random_ones(file):
    net = state_of(classes=5)
    state = net.state_dict()
    model = built(trainable=["head"], weights={"file": file(state), "skip": ["head", "order"]})
    images = torch.randn(2, *SHAPE)
    model.eval()
    net.eval()
    assert torch.equal(model.blocks["stem"](images), net.norm(net.stem(images)).flatten(1))
    plain = values(built(trainable=["head"]), 4)
    assert {name: tensor.tolist() for name, tensor in values(model, 4).items()} == {
        name: tensor.tolist() for name, tensor in plain.items()
    }


@pytest.mark.parametrize("type", [torch.bfloat16, torch.float64])
def test_other_floating_point_types_are_converted(file, type):
    state = {
        name: each.to(type) if each.is_floating_point() else each for name, each in state_of().state_dict().items()
    }
    found = values(built(weights=file(state)))
    assert all(torch.equal(found[name], state[name].float()) for name in found)


@pytest.mark.parametrize(
    ("spec", "options", "shape"),
    [
        (Ordinary, {}, SHAPE),
        (Ordinary, {"trainable": ["head", "norm"]}, SHAPE),
        (MODELS["cnn"], {"width": 2, "norm": "batch"}, (1, 8, 8)),
        (MODELS["mlp"], {}, (6,)),
        (MODELS["char_transformer"], {"width": 8, "heads": 2}, (6,)),
    ],
    ids=["ordinary", "a part", "cnn", "mlp", "transformer"],
)
def test_a_runs_own_final_model_loads_back(tmp_path, spec, options, shape):
    model = built(spec, shape, **options)
    vector, path = torch.randn(model.layout.size), tmp_path / "final.safetensors"
    write_model(vector, model, path)
    again = built(spec, shape, weights=str(path), **options)
    assert torch.equal(initial_vector(again, 0), vector)
    assert torch.equal(initial_vector(again, 3), vector)
    assert torch.equal(read_model(path, model), vector)


def test_a_part_that_a_run_trained_replaces_that_of_the_whole_model(file, tmp_path):
    net, path = state_of(), tmp_path / "final.safetensors"
    whole = file(net.state_dict())
    model = built(trainable=["head"], weights=whole)
    vector = torch.randn(model.layout.size)
    write_model(vector, model, path)
    again = built(trainable=["head"], weights={"file": whole, "trained": str(path)})
    assert torch.equal(initial_vector(again, 2), vector)
    images = torch.randn(2, *SHAPE)
    assert torch.equal(again.eval().blocks["stem"](images), net.eval().norm(net.stem(images)).flatten(1))
    with pytest.raises(UserError, match=r"weights: expected the tensor 'head.weight' \[3, 64\], found none"):
        built(trainable=["head"], weights={"file": whole, "trained": file({"head.bias": torch.zeros(3)}, "part.pt")})


def test_a_model_that_a_method_adapts_keeps_the_pretrained_values(tmp_path):
    from edgefl.methods.build import build_method
    from edgefl.methods.parts.local_options import LocalOptions

    model = built(MODELS["cnn"], (1, 8, 8))
    vector, path = torch.randn(model.layout.size), tmp_path / "final.safetensors"
    write_model(vector, model, path)
    own = built(MODELS["cnn"], (1, 8, 8), weights=str(path))
    adapted = build_method("moon", LocalOptions()).objective.adapt(own)
    front = adapted.layout.weights(*adapted.layout.split(initial_vector(adapted, 0)))[:-2]
    for found, read in zip(front, model.layout.weights(*model.layout.split(vector)), strict=False):
        assert found.keys() == read.keys()
        assert all(torch.equal(found[name], read[name]) for name in found)


def changed(**changes):
    return {**state_of().state_dict(), **changes}


def without(name):
    return {key: tensor for key, tensor in state_of().state_dict().items() if key != name}


class Made:
    def __reduce__(self):
        return print, ("code ran",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (without("head.bias"), r"expected the tensor 'head.bias' \[3\], found none"),
        (without("stem.weight") | {"stm.weight": torch.zeros(1)}, r"'stem.weight'.*, found none; the nearest name"),
        (changed(extra=torch.zeros(2)), r"found the tensor 'extra', which the model does not have; weights.skip"),
        (changed(**{"head.weight": torch.zeros(4, 64)}), r"expected 'head.weight' of the shape \[3, 64\], found \[4"),
        (changed(**{"head.bias": torch.tensor([1, torch.inf, 2])}), r"expected finite numbers in 'head.bias'"),
        (changed(**{"head.bias": torch.tensor([1, 2, 3])}), r"expected floating-point numbers in 'head.bias', found"),
        (changed(**{"second.weight": torch.zeros(64, 64)}), r"expected the values of another tensor in 'second"),
        ({"state_dict": state_of().state_dict()}, r"tensors by name, found something else at 'st"),
        ({"head": Made()}, r"found a pickle that needs code, which edgefl does not run; save module.state_dict\(\)"),
    ],
    ids=["missing", "misspelt", "extra", "shape", "infinite", "integers", "tied", "nested", "code"],
)  # fmt: skip
def test_a_wrong_file_is_refused_in_one_sentence(file, capsys, content, message):
    path = file(content)
    with pytest.raises(UserError, match=message) as refused:
        built(weights=path)
    assert refused.value.file == path
    assert "\n" not in str(refused.value)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("net.safetensors", b"not one", r"not a readable .safetensors file"),
        ("net.pt", b"", r"not a readable .pt file"),
        ("net.bin", b"", r"expected a file of the format .safetensors, .pt, .pth, found 'net.bin'"),
    ],
)
def test_a_file_of_another_format_is_refused(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        built(weights=str(tmp_path / name))


def test_a_missing_file_and_a_pattern_without_tensors_are_refused(file):
    with pytest.raises(UserError, match=r"expected a file at '/none.pt'.*, found none"):
        built(weights="/none.pt")
    with pytest.raises(UserError, match=r"weights.skip: 'haed' names no tensors; expected submodules, such as: order"):
        built(weights={"file": file(state_of().state_dict()), "skip": ["haed"]})
