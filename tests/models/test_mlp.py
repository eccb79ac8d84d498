import pytest
import torch

from edgefl.errors import UserError
from edgefl.methods.build import build_method
from edgefl.methods.local_options import LocalOptions
from edgefl.models.registry import MODELS, build_model


def test_each_layer_is_a_block_and_the_output_is_the_perceptrons():
    model = build_model(MODELS["mlp"](widths=(5, 3)), (2, 4), 6)
    assert model.layout.block_names == ("fc1", "fc2", "fc3")
    first, second, last = (
        [tensor for _, tensor in sorted(block.named_parameters(), reverse=True)] for block in model.blocks.values()
    )
    inputs = torch.randn(7, 2, 4, generator=torch.Generator().manual_seed(0))
    hidden = (inputs.reshape(7, 8) @ first[0].T + first[1]).relu()
    hidden = (hidden @ second[0].T + second[1]).relu()
    torch.testing.assert_close(model(inputs), hidden @ last[0].T + last[1])


def test_integers_are_numbers():
    model = build_model(MODELS["mlp"](), (4,), 3)
    tokens = torch.arange(8).view(2, 4)
    assert torch.equal(model(tokens), model(tokens.float()))


def test_a_method_for_feature_maps_is_refused():
    model = build_model(MODELS["mlp"](), (4,), 3)
    with pytest.raises(UserError, match="this model has none"):
        build_method("fedalign", LocalOptions()).objective.adapt(model)
