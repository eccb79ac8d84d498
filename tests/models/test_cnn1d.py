import pytest
import torch

from edgefl.errors import UserError
from edgefl.models.registry import MODELS, build_model


def test_shapes_and_blocks():
    model = build_model(MODELS["cnn1d"](width=4, kernel=5), (3, 128), 7)
    assert model.layout.block_names == ("conv1", "conv2", "fc1", "fc2")
    assert model(torch.zeros(2, 3, 128)).shape == (2, 7)
    assert [tuple(shape) for shape in model.tap_shapes[:2]] == [(4, 32), (8, 8)]


@pytest.mark.parametrize("shape", [(3, 15), (3, 32, 32), (128,)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(UserError, match=r"takes \[channels, length\]"):
        build_model(MODELS["cnn1d"](), shape, 4)
