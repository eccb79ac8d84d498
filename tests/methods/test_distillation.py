"""Losses with a teacher, against their formulas where a step does not show them."""

from __future__ import annotations

import pytest
import torch

from edgefl.methods.fedadc_plus import SelfConfidence, self_confident_target
from edgefl.methods.fedavg import CrossEntropy


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
