"""A model's tensors in one vector: nothing lost, nothing doubled, convolutions as they compute fastest."""

from __future__ import annotations

import pytest
import torch
from torch import nn

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
