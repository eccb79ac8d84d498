"""What every method's loss promises to the engines: it can be counted without data, and clients train side by side."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from edgefl.cost.measure import measure
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.objective import Batch, Context
from edgefl.methods.recipe import METHODS, Method
from edgefl.models.block_model import BlockModel
from edgefl.models.classifier import Classifier
from edgefl.models.norm import GroupNorm
from edgefl.models.registry import initial_vector
from edgefl.models.residual import basic_block
from edgefl.models.slimmable import Conv2d, Linear

LOCAL = LocalOptions(lr=0.1, clip_norm=10)


def prepared(name: str) -> tuple[Method, BlockModel]:
    """A method and the model that it trains: a residual network of four small blocks."""
    # With two residual blocks and ρ = 0.9 most draws of Stochastic Depth leave nothing out.
    method = build_method({"method": name, **({"survival": 0.01} if name == "stochdepth" else {})}, LOCAL)
    norm = partial(GroupNorm, 2)
    blocks = {
        "conv1": nn.Sequential(Conv2d(3, 8, 3), norm(8), nn.ReLU()),
        "layer1": basic_block(8, 8, 1, norm),
        "layer2": basic_block(8, 16, 2, norm),
        "fc": Classifier(Linear(16, 4, slim_outputs=False), pool=True),
    }
    return method, method.objective.adapt(BlockModel(blocks, sample_shape=(3, 8, 8), classes=4, align_block=2))


def pieces(method: Method, model: BlockModel, seed: int) -> dict[str, Tensor]:
    """Everything that differs from client to client, as one flat mapping."""
    layout = model.layout
    draws = torch.Generator().manual_seed(seed)
    start = initial_vector(model, 0)
    named = {"inputs": torch.randn(4, 3, 8, 8, generator=draws), "labels": torch.randint(4, (4,), generator=draws)}
    named["local"] = start + 0.01 * torch.randn(layout.size, generator=draws)
    for vector in sorted(method.objective.vectors | method.rule.vectors):
        size = 1 if vector == "teaching" else layout.parameter_count
        named[f"vector {vector}"] = start[:size] + 0.01 * torch.randn(size, generator=draws)
    for copy in sorted(method.objective.frozen):
        named[f"frozen {copy}"] = start + 0.01 * torch.randn(layout.size, generator=draws)
    named["label_counts"] = torch.tensor([5.0, 2.0, 0.0, 9.0])
    drawn = method.objective.draw(np.random.default_rng(seed), 4)
    return named | {f"draw {key}": value for key, value in drawn.items()}


@pytest.mark.parametrize("name", METHODS.names())
def test_a_step_is_counted_without_data_and_draws_from_no_global_generator(name) -> None:
    method, model = prepared(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cost = measure(model, method, model.depth, 2)
    assert cost.forward_macs >= cost.layer_macs > 0


@pytest.mark.parametrize("name", [name for name in METHODS.names() if build_method(name, LOCAL).objective.side_by_side])
def test_clients_side_by_side_get_the_gradients_they_get_alone(name) -> None:
    method, model = prepared(name)
    layout = model.layout
    clients = [pieces(method, model, seed) for seed in (1, 2)]

    def loss(local: Tensor, rest: dict[str, Tensor]) -> Tensor:
        def having(kind: str) -> dict[str, Tensor]:
            return {name.removeprefix(kind): value for name, value in rest.items() if name.startswith(kind)}

        frozen = {key: layout.weights(*layout.split(flat)) for key, flat in having("frozen ").items()}
        client = {"label_counts": rest["label_counts"], "round": torch.tensor(7)}
        context = Context(model, frozen, having("vector "), client, model.depth, having("draw "))
        weights = layout.weights(*layout.split(local))
        return method.objective.loss(weights, Batch(rest["inputs"], rest["labels"]), context).total

    stacked = {key: torch.stack([client[key] for client in clients]) for key in clients[0]}
    local = stacked.pop("local")
    together = torch.func.vmap(torch.func.grad(loss))(local, stacked)
    for row, client in zip(together, clients, strict=True):
        alone = torch.func.grad(loss)(client.pop("local"), client)
        torch.testing.assert_close(row, alone, rtol=2e-3, atol=2e-5)
