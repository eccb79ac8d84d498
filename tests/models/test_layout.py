"""Blocks, layouts and vectors of a model."""

import pickle

import pytest
import torch
from torch import nn

from edgefl.models.block_model import BlockModel
from edgefl.models.comparison import difference
from edgefl.models.layered import layered
from edgefl.models.layout import Layout
from edgefl.models.registry import MODELS, build_model

CASES = [("cnn", {"norm": "batch"}), ("shufflenet", {})]


@pytest.fixture(params=CASES, ids=str, scope="module")
def layout(request):
    name, options = request.param
    return build_model(MODELS[name](**options), (3, 16, 16), 10).layout


def test_tensors_taken_from_a_vector_and_put_back_are_the_vector(layout):
    vector = torch.arange(float(layout.size))
    weights = layout.weights(*layout.split(vector))
    assert torch.equal(layout.flatten(weights), vector)
    assert torch.equal(layout.vector(weights), vector[: layout.parameter_count])
    numbers = torch.cat([tensor.reshape(-1) for block in weights for tensor in block.values()])
    assert torch.equal(numbers.sort().values, vector)


def test_a_stack_of_vectors_gives_stacks_of_tensors(layout):
    stack = torch.arange(2.0 * layout.size).reshape(2, -1)
    weights = layout.weights(*layout.split(stack))
    for row, vector in enumerate(stack):
        for block, alone in zip(weights, layout.weights(*layout.split(vector)), strict=True):
            assert all(torch.equal(block[name][row], tensor) for name, tensor in alone.items())
    assert torch.equal(layout.vector(weights), stack[:, : layout.parameter_count])


def test_convolutions_lie_channels_last_and_share_the_vectors_memory(layout):
    vector = torch.zeros(layout.size)
    weights = layout.weights(*layout.split(vector))
    for entry in layout.parameters:
        tensor = weights[entry.block][entry.name]
        assert tensor.shape == entry.shape
        if tensor.dim() == 4:
            assert tensor.is_contiguous(memory_format=torch.channels_last)
        tensor.fill_(1.0)
    assert vector.sum() == layout.parameter_count


def test_a_block_is_a_slice_of_each_half(layout):
    one, other = torch.zeros(layout.size), torch.ones(layout.size)
    for first in range(len(layout.block_names) + 1):
        spliced = layout.weights(*layout.split(layout.splice(one, other, first)))
        for index, block in enumerate(spliced):
            assert all((tensor == float(index >= first)).all() for tensor in block.values())


def test_the_gradient_by_the_vector_is_the_gradients_by_its_tensors(layout):
    vector = torch.linspace(-1, 1, layout.size)
    leaf = vector[: layout.parameter_count].clone().requires_grad_()
    sum((tensor**3).sum() for block in layout.weights(leaf) for tensor in block.values()).backward()
    assert torch.allclose(leaf.grad, 3 * leaf.detach() ** 2)


def test_a_single_number_has_its_place_like_any_tensor():
    layer = nn.Linear(3, 2)
    layer.temperature = nn.Parameter(torch.tensor(1.0))
    layer.register_buffer("scale", torch.tensor(1.0))
    layout = Layout({"only": layer})
    vector = torch.arange(float(layout.size))
    (weights,) = layout.weights(*layout.split(vector))
    assert layout.size == 6 + 2 + 1 + 1
    assert {name: tensor.shape for name, tensor in weights.items()} == {
        name: tensor.shape for name, tensor in layer.state_dict().items()
    }
    assert torch.equal(layout.flatten([weights]), vector)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, hidden, scale, *, shift=None):
        return (self.linear(hidden) * scale + (0 if shift is None else shift),)


class Stack(nn.Module):
    """Layers get the hidden state, and numbers that depend on the batch's size only."""

    def __init__(self, depth=3):
        super().__init__()
        self.words, self.body = nn.Embedding(5, 4), nn.Module()
        self.body.layers = nn.ModuleList(Layer() for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(4), nn.Linear(4, 2)

    def scale(self, tokens):
        return torch.arange(3.0)[:, None].expand(len(tokens), 3, 1)

    def forward(self, tokens):
        hidden, scale = self.words(tokens), self.scale(tokens)
        for layer in self.body.layers:
            (hidden,) = layer(hidden, scale, shift=torch.ones(4))
        return self.head(self.norm(hidden)).mean(1)


class ReadsData(Stack):
    def scale(self, tokens):
        return tokens[:, :, None].float()


class Skip(Stack):
    """Its head reads what the embedding returned."""

    def forward(self, tokens):
        first = hidden = self.words(tokens)
        for layer in self.body.layers:
            (hidden,) = layer(hidden, self.scale(tokens))
        return self.head(self.norm(hidden) + first).mean(1)


class Own(Stack):
    def __init__(self):
        super().__init__()
        self.body.scale = nn.Parameter(torch.ones(1))


def inputs(batch, device):
    return torch.zeros(batch, 3, dtype=torch.int64, device=device)


def test_the_blocks_compute_what_the_module_computes():
    module = Stack()
    split = layered(module, inputs)
    assert list(split.blocks) == ["embedding", "layer1", "layer2", "layer3", "head"]
    names = {name for block in split.blocks.values() for name, _ in block.named_parameters()}
    assert names == set(dict(module.named_parameters()))
    tokens = torch.randint(0, 5, (4, 3))
    for blocks in (split.blocks, pickle.loads(pickle.dumps(split.blocks))):
        tap = tokens
        for block in blocks.values():
            tap = block(tap)
        assert torch.equal(tap, module(tokens))


def test_the_last_block_executes_nothing_of_what_precedes_it():
    module = Stack()
    head, calls = layered(module, inputs).blocks["head"], []
    for each in (module.words, *module.body.layers):
        each.register_forward_hook(lambda layer, _, output: calls.append(output))
    head(torch.ones(2, 3, 4)).sum().backward()
    assert all(each.grad is None for each in (module.words.weight, *module.body.parameters()))
    assert module.head.weight.grad is not None
    assert "forward" not in vars(module.words)


@pytest.mark.parametrize("make", [Own, None])
def test_other_modules_are_not_split(make):
    assert layered(nn.Sequential(nn.Embedding(5, 2)) if make is None else make(), inputs) is None


@pytest.mark.parametrize(("make", "place"), [(Stack, None), (ReadsData, "body.layers.0"), (Skip, "head")])
def test_blocks_that_compute_something_else_are_found_with_the_place(make, place):
    module = make()
    model = BlockModel(
        layered(module, inputs).blocks, module=module, sample_shape=(3,), classes=2, align_block=1,
        input_type=torch.int64,
    )  # fmt: skip
    values = {name: each.clone() for name, each in module.state_dict().items()}
    assert difference(model, torch.randint(0, 5, (4, 3))) == place
    assert all(torch.equal(each, values[name]) for name, each in module.state_dict().items())
