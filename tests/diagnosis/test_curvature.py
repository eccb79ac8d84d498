"""Products, eigenvalues and traces against the dense Hessian of a tiny model in float64."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edgefl.diagnosis.diagnose import Curvature, dissimilarity, landscape
from edgefl.methods.parts.objective import Batch
from edgefl.models.block_model import BlockModel
from edgefl.models.norm import BatchNorm
from edgefl.models.slimmable import Conv2d, Linear


@pytest.fixture(scope="module")
def tiny():
    generator = torch.Generator().manual_seed(3)
    blocks = {
        "first": nn.Sequential(Conv2d(1, 2, 3, bias=False), BatchNorm(2), nn.Tanh(), nn.AdaptiveAvgPool2d(1)),
        "second": nn.Sequential(nn.Flatten(), Linear(2, 3, slim_outputs=False)),
    }
    model = BlockModel(blocks, sample_shape=(1, 5, 5), classes=3, align_block=1)
    vector = torch.randn(model.layout.size, generator=generator, dtype=torch.float64)
    vector[model.layout.parameter_count :] = vector[model.layout.parameter_count :].abs() + 0.5
    inputs = torch.randn(24, 1, 5, 5, generator=generator, dtype=torch.float64)
    labels = torch.arange(24) % 3
    batches = [Batch(inputs[:12], labels[:12]), Batch(inputs[12:], labels[12:])]
    return Curvature(model, vector, batches, {})


@pytest.fixture(scope="module")
def dense(tiny):
    """The Hessian by differentiating a hand-written forward pass twice."""
    layout = tiny.model.layout
    buffers = layout.split(tiny.vector)[1]
    named = layout.weights(tiny.parameters, buffers)
    statistics = {name: tensor for name, tensor in named[0].items() if "running" in name}
    inputs = torch.cat([batch.inputs for batch in tiny.batches])
    labels = torch.cat([batch.labels for batch in tiny.batches])

    def loss(parameters):
        first, second = layout.weights(parameters)
        kernel, scale, shift = first.values()
        mean, variance = (statistics[next(n for n in statistics if word in n)] for word in ("mean", "var"))
        maps = F.conv2d(inputs, kernel, padding=1)
        maps = (maps - mean[:, None, None]) / torch.sqrt(variance[:, None, None] + 1e-5)
        maps = torch.tanh(maps * scale[:, None, None] + shift[:, None, None])
        weight, bias = second.values()
        return F.cross_entropy(maps.mean(dim=(2, 3)) @ weight.T + bias, labels)

    return torch.autograd.functional.hessian(loss, tiny.parameters)


def test_products_are_those_of_the_dense_hessian(tiny, dense):
    for seed in range(2):
        direction = torch.randn(len(dense), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        torch.testing.assert_close(tiny.product(direction), dense @ direction, rtol=1e-9, atol=1e-11)


def test_power_iteration_finds_the_eigenvalue_of_largest_magnitude(tiny, dense):
    values = torch.linalg.eigvalsh(dense)
    largest = values[values.abs().argmax()]
    assert tiny.top_eigenvalue() == pytest.approx(float(largest), rel=0.02)


def test_the_plane_is_that_of_the_two_largest_eigenvalues(tiny, dense):
    values, vectors = torch.linalg.eigh(dense)
    found, plane = tiny.top_plane()
    torch.testing.assert_close(found, values[-2:].flip(0), rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(plane @ plane.T, torch.eye(2, dtype=torch.float64), rtol=0, atol=1e-6)
    for mine, theirs in zip(plane, vectors.T[-2:].flip(0), strict=True):
        assert abs(float(mine @ theirs)) == pytest.approx(1.0, abs=1e-3)


def test_hutchinson_estimates_trace_and_diagonal(tiny, dense, monkeypatch):
    monkeypatch.setattr("edgefl.diagnosis.diagnose.TOLERANCE", -1.0)
    monkeypatch.setattr("edgefl.diagnosis.diagnose.ITERATIONS", 80)
    found = tiny.diagonal()
    # The variance of vᵀHv is twice the squared sum of off-diagonal entries.
    off = dense - torch.diag(torch.diagonal(dense))
    deviation = float((2 * off.square().sum() / 80).sqrt())
    assert abs(float(found.sum()) - float(torch.diagonal(dense).sum())) < 4 * deviation
    error = (found - torch.diagonal(dense)).norm()
    assert float(error) < 4 * float((off.square().sum() / 80).sqrt())


def test_along_the_eigenvectors_the_loss_bends_as_the_eigenvalues_say(tiny):
    near = landscape(tiny, radius=1e-3, points=3)
    middle = near.losses[1]
    curve = (middle[0] - 2 * middle[1] + middle[2]) / 1e-6
    assert curve == pytest.approx(near.eigenvalues[0], rel=0.01)
    down = near.losses[:, 1]
    assert (down[0] - 2 * down[1] + down[2]) / 1e-6 == pytest.approx(near.eigenvalues[1], rel=0.02)
    assert near.losses[1, 1] == pytest.approx(tiny.loss(tiny.parameters))


def test_dissimilarity_is_the_mean_over_all_pairs_and_over_true_pairs():
    rows = [torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0]), torch.tensor([-1.0, 0.5])]
    found = dissimilarity(rows)
    norms = [float((a - b).norm()) for a in rows for b in rows]
    cosines = [float(F.cosine_similarity(a, b, dim=0)) for a in rows for b in rows]
    assert found["h_n"] == pytest.approx(np.mean(norms), rel=1e-6)
    assert found["h_d"] == pytest.approx(np.mean(cosines), rel=1e-6)
    assert found["h_n_pairs"] == pytest.approx(sum(norms) / 6)
    assert found["h_d_pairs"] == pytest.approx((sum(cosines) - 3) / 6)
    assert dissimilarity(rows[:1]) is None
