"""A tiny smooth model in double precision, for formulas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from edgefl.methods.parts.objective import Batch, Context, Loss, Objective
from edgefl.models.block_model import BlockModel
from edgefl.models.classifier import Classifier
from edgefl.models.layout import Weights
from edgefl.models.slimmable import Conv2d, Linear


@dataclass
class Bench:
    """A model with local weights, frozen copies and a batch, and the loss as a function of the flat weights."""

    model: BlockModel
    local: Tensor
    received: Tensor
    previous: Tensor
    batch: Batch
    vectors: Mapping[str, Tensor]
    client: Mapping[str, Tensor]

    def weights(self, flat: Tensor) -> Weights:
        return self.model.layout.weights(flat)

    def context(self, objective: Objective, alpha: int | None = None) -> Context:
        frozen = {"received": self.weights(self.received), "previous": self.weights(self.previous)}
        draws = objective.draw(np.random.default_rng(3), len(self.batch.labels))
        return Context(
            self.model,
            {name: frozen[name] for name in objective.frozen},
            self.vectors,
            self.client,
            self.model.depth if alpha is None else alpha,
            draws,
        )

    def loss(self, objective: Objective, flat: Tensor | None = None, alpha: int | None = None) -> Loss:
        return objective.loss(
            self.weights(self.local if flat is None else flat), self.batch, self.context(objective, alpha)
        )

    def gradient(self, objective: Objective, alpha: int | None = None) -> Tensor:
        leaf = self.local.clone().requires_grad_()
        return torch.autograd.grad(self.loss(objective, leaf, alpha).total, leaf)[0]


def build_bench(seed: int = 0, *, residual: bool = False) -> Bench:
    """Two smooth convolutions and two linear layers (M = 4) on 6×6 images of three classes."""
    conv2: nn.Module = nn.Sequential(Conv2d(8, 16, 3, bias=True), nn.Softplus(), nn.AvgPool2d(2))
    blocks = {
        "conv1": nn.Sequential(Conv2d(2, 8, 3, bias=True), nn.Softplus()),
        "conv2": conv2,
        "fc1": nn.Sequential(nn.Flatten(), Linear(16 * 9, 8), nn.Tanh()),
        "fc2": Classifier(Linear(8, 3, slim_outputs=False), pool=False),
    }
    model = BlockModel(blocks, sample_shape=(2, 6, 6), classes=3, align_block=1)
    draws = torch.Generator().manual_seed(seed)
    size = model.layout.parameter_count

    def vector(scale: float = 0.25) -> Tensor:
        return scale * torch.randn(size, generator=draws, dtype=torch.float64)

    received = vector()
    local, previous = received + vector(0.1), received + vector(0.1)
    batch = Batch(torch.randn(5, 2, 6, 6, generator=draws, dtype=torch.float64), torch.tensor([0, 1, 1, 0, 0]))
    vectors = {"received": received, "drift": vector(), "teacher": received + vector(0.1)}
    return Bench(model, local, received, previous, batch, vectors, {"label_counts": torch.tensor([6.0, 3.0, 0.0])})


@pytest.fixture
def bench() -> Bench:
    return build_bench()
