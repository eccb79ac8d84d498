"""The temporal ensemble against the sum it stands for."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from edgefl.training.kept_models import TemporalEnsemble

models = st.lists(st.floats(-10, 10), min_size=1, max_size=20)


@given(models=models, decay=st.floats(0, 0.99))
def test_it_is_the_weighted_mean_of_all_models(models, decay):
    ensemble = TemporalEnsemble(decay)
    for number in models:
        ensemble.add(torch.tensor([number], dtype=torch.float64))
    weights = [decay ** (len(models) - 1 - place) for place in range(len(models))]
    expected = sum(w * m for w, m in zip(weights, models, strict=True)) / sum(weights)
    assert float(ensemble.vector) == pytest.approx(expected, abs=1e-9)


def test_without_decay_it_is_the_newest_model():
    ensemble = TemporalEnsemble(0.0)
    for number in (3.0, 5.0):
        ensemble.add(torch.tensor([number]))
    assert float(ensemble.vector) == 5.0


def test_what_was_put_on_disk_goes_on_as_if_nothing_had_been():
    whole, first, second = TemporalEnsemble(0.9), TemporalEnsemble(0.9), TemporalEnsemble(0.9)
    values = torch.randn(6, 3, generator=torch.Generator().manual_seed(1))
    for place, model in enumerate(values):
        whole.add(model)
        if place == 3:
            second.restore(first.packed() if first.vector is not None else {})
        (first if place < 3 else second).add(model)
    assert torch.equal(whole.vector, second.vector)
