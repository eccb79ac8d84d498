"""FedAlign against linear algebra that does it another way."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edgefl.errors import UserError
from edgefl.methods.fedalign import FedAlign, spectral_norm, transmitting_matrix
from edgefl.models.block_model import BlockModel
from edgefl.models.classifier import Classifier
from edgefl.models.slimmable import Linear


def test_the_power_iteration_finds_the_largest_singular_value_after_enough_steps() -> None:
    matrices = torch.rand(4, 5, 9, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    wanted = torch.linalg.matrix_norm(matrices, ord=2)
    torch.testing.assert_close(spectral_norm(matrices, iterations=200), wanted)
    torch.testing.assert_close(wanted.square(), torch.linalg.eigvalsh(matrices @ matrices.mT)[:, -1])


def test_a_dead_feature_map_has_gradient_zero() -> None:
    matrix = torch.zeros(2, 3, 4, requires_grad=True)
    spectral_norm(matrix).sum().backward()
    assert torch.equal(matrix.grad, torch.zeros(2, 3, 4))


def test_the_transmitting_matrix_averages_products_over_places() -> None:
    draws = torch.Generator().manual_seed(3)
    before = torch.randn(2, 3, 4, 4, generator=draws, dtype=torch.float64)
    after = torch.randn(2, 5, 2, 2, generator=draws, dtype=torch.float64)
    pooled = before.unfold(2, 2, 2).unfold(3, 2, 2).mean(dim=(-2, -1))
    wanted = torch.einsum("nahw,nbhw->nab", pooled, after) / 4
    torch.testing.assert_close(transmitting_matrix(before, after), wanted)


def by_formula(bench, leaf: torch.Tensor, objective: FedAlign) -> torch.Tensor:
    """The loss with the sub-block run by hand on sliced weights: 8 of 8 input and 8 of 16 output channels."""
    weights = bench.weights(leaf)
    first, second, *_ = bench.model.taps(weights, bench.batch.inputs)
    logits = bench.model.apply_blocks(weights, second, start=2)
    cross_entropy = F.cross_entropy(logits, bench.batch.labels)
    block = weights[1]
    narrow = first.detach()
    sub = F.avg_pool2d(F.softplus(F.conv2d(narrow, block["0.weight"][:8], block["0.bias"][:8], padding=1)), 2)
    if objective.detach_full:
        first, second = first.detach(), second.detach()

    def norm(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
        product = torch.einsum("nahw,nbhw->nab", F.avg_pool2d(before, 2), after) / 9
        gram = product @ product.mT
        vector = torch.ones(*gram.shape[:-1], 1, dtype=gram.dtype)
        for _ in range(9):
            vector = gram @ vector
            vector = vector / vector.norm(dim=1, keepdim=True)
        return (gram @ vector).norm(dim=(1, 2)).sqrt()

    gap = ((norm(narrow, sub) - norm(first, second)) ** 2).mean()
    factor = cross_entropy.item() / gap.item() if objective.rescale else 1.0
    return cross_entropy + objective.mu * factor * gap


@pytest.mark.parametrize("rescale", [True, False])
@pytest.mark.parametrize("detach_full", [True, False])
def test_the_loss_and_its_gradient_are_those_of_the_formula(bench, rescale, detach_full) -> None:
    objective = FedAlign(rescale=rescale, detach_full=detach_full, sub_width=0.5)
    leaf = bench.local.clone().requires_grad_()
    wanted = by_formula(bench, leaf, objective)
    assert float(bench.loss(objective).total) == pytest.approx(float(wanted.detach()), rel=1e-9)
    torch.testing.assert_close(bench.gradient(objective), torch.autograd.grad(wanted, leaf)[0], rtol=1e-7, atol=1e-10)


def test_the_rescaled_term_is_always_mu_times_the_cross_entropy(bench) -> None:
    loss = bench.loss(FedAlign(mu=0.45))
    assert float(loss.total) == pytest.approx(1.45 * float(loss.cross_entropy), rel=1e-6)


def test_a_model_without_feature_maps_is_refused() -> None:
    blocks = {
        "fc1": nn.Sequential(nn.Flatten(), Linear(4, 8)),
        "fc2": Linear(8, 8),
        "fc3": Classifier(Linear(8, 2, slim_outputs=False), pool=False),
    }
    model = BlockModel(blocks, sample_shape=(1, 2, 2), classes=2, align_block=1)
    with pytest.raises(UserError, match="convolutional"):
        FedAlign().adapt(model)
