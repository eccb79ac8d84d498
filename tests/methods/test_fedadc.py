"""FedADC's local rule and FedADC+'s target."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from edgefl.errors import UserError
from edgefl.methods.fedadc import FedAdcRule
from edgefl.methods.fedadc_plus import SelfConfidence, self_confident_target
from edgefl.methods.fedalign import FedAlign, spectral_norm, transmitting_matrix
from edgefl.methods.fedavg import CrossEntropy
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.local_rule import Sgd
from edgefl.models.block_model import BlockModel
from edgefl.models.classifier import Classifier
from edgefl.models.slimmable import Linear

LR, BETA, DECAY = 0.1, 0.6, 0.05
START, MOMENTUM, TARGET = 2.0, 4.0, 1.5


def gradient(x):
    """Of 1.5 (x - target)²."""
    return 3 * (x - TARGET)


def run(rule: FedAdcRule | Sgd, steps: int, options: LocalOptions) -> float:
    x = torch.tensor([START], dtype=torch.float64)
    memory = rule.begin(x, {"momentum": torch.tensor([MOMENTUM], dtype=torch.float64)}, options, steps)
    for _ in range(steps):
        x = rule.update(x, gradient(rule.point(x, memory, LR)), memory, options, LR)
    return float(x)


def test_double_damps_every_gradient_but_the_first() -> None:
    steps, phi = 4, 0.7
    x, pull, velocity = START, BETA * MOMENTUM / steps, None
    for _ in range(steps):
        g = gradient(x)
        velocity = g if velocity is None else phi * velocity + (1 - phi) * g
        x -= LR * (pull + velocity)
    assert run(FedAdcRule(variant="double", beta_l=BETA, phi=phi), steps, LocalOptions()) == pytest.approx(x)


@pytest.mark.parametrize("variant", ["red", "blue"])
@pytest.mark.parametrize("steps", [1, 7])
def test_a_client_follows_the_same_total_whatever_its_number_of_steps(variant, steps) -> None:
    rule, options = FedAdcRule(variant=variant, beta_l=BETA), LocalOptions(clip_norm=1e-9)
    x = torch.tensor([START], dtype=torch.float64)
    memory = rule.begin(x, {"momentum": torch.tensor([MOMENTUM], dtype=torch.float64)}, options, steps)
    for _ in range(steps):
        x = rule.update(x, torch.full((1,), 1e9, dtype=torch.float64), memory, options, LR)
    assert float(x) == pytest.approx(START - LR * BETA * MOMENTUM, abs=1e-8)  # clipping touches no momentum


def test_the_self_confident_target_by_hand() -> None:
    """Counts (6, 3, 0): ρ = (1, ½, 0), so the label takes the teacher's mass on 0 and half of that on 1."""
    teacher = torch.tensor([[0.2, 0.5, 0.3], [0.2, 0.5, 0.3]], dtype=torch.float64)
    target = self_confident_target(teacher, torch.tensor([0, 1]), torch.tensor([6.0, 3.0, 0.0]))
    wanted = torch.tensor([[1 - 0.25 - 0.3, 0.25, 0.3], [0.0, 0.7, 0.3]], dtype=torch.float64)
    torch.testing.assert_close(target, wanted)
    assert bool((target.gather(1, torch.tensor([[0], [1]])) >= teacher.gather(1, torch.tensor([[0], [1]]))).all())


@pytest.mark.parametrize("teacher", ["received", "local"])
def test_fedadc_plus_on_iid_data_is_cross_entropy(bench, teacher) -> None:
    bench.client = {"label_counts": torch.tensor([4.0, 4.0, 4.0])}
    objective = SelfConfidence(lam=0.35, teacher=teacher)
    assert float(bench.loss(objective).total) == pytest.approx(float(bench.loss(CrossEntropy()).total), rel=1e-12)
    torch.testing.assert_close(bench.gradient(objective), bench.gradient(CrossEntropy()))


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
