"""Ordinary modules drawn at random: layers, reuse, branches, freezing, norms, nesting, names."""

import copy
from functools import partial

import numpy as np
import torch
from torch import nn

NAMES = ("part", "part_1", "blocks", "module", "body", "names", "a", "a_b", "layer", "weights")
WIDTH = 6


class Average(nn.Module):
    """Subtracts a moving average that it keeps in a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("average", torch.zeros(WIDTH))

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.average.lerp_(x.mean(0), 0.2)
        return x - self.average


class Scaled(nn.Module):
    """Reads its own and a shared parameter, a table of indices and a mask of infinite numbers."""

    def __init__(self, shared):
        super().__init__()
        self.scale, self.shared = nn.Parameter(torch.ones(WIDTH)), shared
        self.register_buffer("order", torch.arange(WIDTH).flip(0))
        self.register_buffer("mask", torch.tensor([0.0, -torch.inf]))

    def forward(self, x):
        kept = torch.stack([x * self.scale, x], -1) + self.mask
        return kept.amax(-1)[:, self.order] + 0.1 * self.shared.tanh()


class Joined(nn.Module):
    """Its children by drawn names, with skip connections, branches, repeated calls and parts without gradients."""

    def __init__(self, children, calls):
        super().__init__()
        for name, child in children.items():
            self.add_module(name, child)
        self.calls = calls

    def forward(self, x):
        for name, how in self.calls:
            child = getattr(self, name)
            if how == "no_grad":
                with torch.no_grad():
                    x = child(x)
            elif how == "skip":
                x = x + torch.tanh(child(x))
            elif how == "branch":
                x = torch.relu(child(x)) * 0.5 + torch.roll(x, 1, -1) if self.training else torch.relu(child(x))
            else:
                x = child(x)
        return x


class Kept(Joined):
    """Keeps its norms in evaluation."""

    def train(self, mode=True):
        super().train(mode)
        for each in self.modules():
            if isinstance(each, nn.BatchNorm1d):
                each.training = False
        return self


class Net(nn.Module):
    def __init__(self, seed):
        super().__init__()
        draw = np.random.default_rng(seed)
        shared = nn.Parameter(torch.randn(WIDTH))
        kinds = [
            partial(nn.Linear, WIDTH, WIDTH), partial(nn.Linear, WIDTH, WIDTH), partial(nn.BatchNorm1d, WIDTH),
            partial(nn.BatchNorm1d, WIDTH, affine=False), partial(nn.LayerNorm, WIDTH), nn.Tanh, nn.ReLU, Average,
            partial(Scaled, shared),
        ]  # fmt: skip

        def joined(depth):
            names = draw.choice(NAMES, size=draw.integers(2, 5), replace=False).tolist()
            children = {name: self._layer(draw, kinds, depth, joined) for name in names}
            if draw.random() < 0.3 and isinstance(children[names[0]], nn.Linear):
                children["tied"] = nn.Linear(WIDTH, WIDTH)
                children["tied"].weight = children[names[0]].weight
                names.append("tied")
            order = [*names, *draw.choice(names, size=draw.integers(0, 3)).tolist()]
            hows = draw.choice(["", "", "skip", "branch", "no_grad"], p=[0.35, 0.2, 0.25, 0.15, 0.05], size=len(order))
            if draw.random() < 0.2:
                children["unused"] = nn.Linear(WIDTH, 2)
            kind = Kept if draw.random() < 0.2 else Joined
            return kind(children, list(zip(order, hows.tolist(), strict=True)))

        self.first, self.inner, self.head = nn.Linear(4, WIDTH), joined(2), nn.Linear(WIDTH, 3)
        for parameter in self.inner.parameters():
            if draw.random() < 0.15:
                parameter.requires_grad_(False)

    def _layer(self, draw, kinds, depth, joined):
        if depth and draw.random() < 0.25:
            return joined(depth - 1)
        if draw.random() < 0.1:
            layer = nn.Linear(WIDTH, WIDTH)
            return nn.Sequential(layer, nn.ReLU(), layer)
        return kinds[draw.integers(len(kinds))]()

    def forward(self, x):
        return self.head(self.inner(torch.tanh(self.first(x))))


def made(seed):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Net(seed)


def federated(module, batches, optimizer, rounds, test):
    """FedAvg over state dicts by plain PyTorch: the last state dict, and the outputs for ``test`` after each round."""
    state, outputs = {name: each.clone() for name, each in module.state_dict().items()}, []
    for _ in range(rounds):
        found = []
        for client in batches:
            local = copy.deepcopy(module)
            local.load_state_dict(state)
            local.train()
            steps = optimizer(list(local.parameters()))
            for x, y in client:
                steps.zero_grad()
                nn.functional.cross_entropy(local(x), y).backward()
                steps.step()
            found.append(local.state_dict())
        for name, each in state.items():
            if each.is_floating_point() and bool(torch.isfinite(each).all()):
                state[name] = torch.stack([one[name] for one in found]).mean(0)
        tested = copy.deepcopy(module)
        tested.load_state_dict(state)
        tested.eval()
        with torch.no_grad():
            outputs.append(tested(test))
    return state, outputs
