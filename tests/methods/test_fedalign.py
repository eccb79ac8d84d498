"""FedAlign against linear algebra that does it another way."""

import pytest
import torch
from torch import nn

from edgefl.errors import UserError
from edgefl.methods.fedalign import FedAlign, spectral_norm
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


def test_a_model_without_feature_maps_is_refused() -> None:
    blocks = {
        "fc1": nn.Sequential(nn.Flatten(), Linear(4, 8)),
        "fc2": Linear(8, 8),
        "fc3": Classifier(Linear(8, 2, slim_outputs=False), pool=False),
    }
    model = BlockModel(blocks, sample_shape=(1, 2, 2), classes=2, align_block=1)
    with pytest.raises(UserError, match="images or texts"):
        FedAlign().adapt(model)
