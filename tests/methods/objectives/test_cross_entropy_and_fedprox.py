"""Cross-entropy and FedProx against their closed forms."""

from __future__ import annotations

import math

import pytest
import torch

from edgefl.methods.objectives.cross_entropy import CrossEntropy
from edgefl.methods.objectives.fedprox import FedProx


def test_cross_entropy_is_the_mean_of_minus_the_log_of_the_label_s_probability(bench) -> None:
    with torch.no_grad():
        logits = bench.model.apply_blocks(bench.weights(bench.local), bench.batch.inputs)
    rows = [
        math.log(sum(math.exp(z) for z in row)) - row[label]
        for row, label in zip(logits.tolist(), bench.batch.labels.tolist(), strict=True)
    ]
    loss = bench.loss(CrossEntropy())
    assert float(loss.total) == pytest.approx(sum(rows) / len(rows), rel=1e-12)
    assert loss.total is loss.cross_entropy


def test_the_gradient_of_cross_entropy_agrees_with_differences(assert_gradient) -> None:
    assert_gradient(CrossEntropy())


@pytest.mark.parametrize("mu", [0.0, 0.01, 3.0])
def test_fedprox_adds_half_mu_times_the_squared_distance_and_mu_times_the_difference_to_the_gradient(bench, mu) -> None:
    plain, leashed = bench.loss(CrossEntropy()), bench.loss(FedProx(mu=mu))
    difference = bench.local - bench.received
    assert float(leashed.total - plain.total) == pytest.approx(mu / 2 * float(difference @ difference), abs=1e-12)
    assert float(leashed.cross_entropy) == float(plain.total)
    torch.testing.assert_close(bench.gradient(FedProx(mu=mu)) - bench.gradient(CrossEntropy()), mu * difference)
