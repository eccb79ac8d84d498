"""FedADC's local rule and FedADC+'s target."""

from __future__ import annotations

import pytest
import torch

from edgefl.methods.fedadc import FedAdcRule
from edgefl.methods.fedadc_plus import SelfConfidence
from edgefl.methods.fedavg import CrossEntropy
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.local_step import Sgd

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


@pytest.mark.parametrize("teacher", ["received", "local"])
def test_fedadc_plus_on_iid_data_is_cross_entropy(bench, teacher) -> None:
    bench.client = {"label_counts": torch.tensor([4.0, 4.0, 4.0])}
    objective = SelfConfidence(lam=0.35, teacher=teacher)
    assert float(bench.loss(objective).total) == pytest.approx(float(bench.loss(CrossEntropy()).total), rel=1e-12)
    torch.testing.assert_close(bench.gradient(objective), bench.gradient(CrossEntropy()))
