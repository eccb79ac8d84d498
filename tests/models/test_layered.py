"""A module with a list of layers is split at them, where each layer can be called alone."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import nn

from edgefl.models.layered import layered


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


@pytest.mark.parametrize("make", [ReadsData, Skip, Own, None])
def test_other_modules_are_not_split(make):
    module = nn.Sequential(nn.Embedding(5, 2)) if make is None else make()
    values = {name: each.clone() for name, each in module.state_dict().items()}
    assert layered(module, inputs) is None
    assert all(torch.equal(each, values[name]) for name, each in module.state_dict().items())
