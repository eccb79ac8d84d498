"""The character model: causal, deterministic, the same as PyTorch's own layers, and trained by every method it fits."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.func import grad, vmap

from edgefl.cost.measure import measure
from edgefl.errors import UserError
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.objective import Batch, Context
from edgefl.models.mode import using
from edgefl.models.registry import MODELS, build_model, initial_vector
from edgefl.tasks.language_model import LanguageModel

LENGTH, CHARACTERS, WIDTH, HEADS = 7, 12, 8, 2


@pytest.fixture
def model():
    spec = MODELS["char_transformer"](width=WIDTH, heads=HEADS, layers=2)
    return build_model(spec, (LENGTH,), CHARACTERS)


def characters(batch, seed=0):
    return torch.randint(CHARACTERS, (batch, LENGTH), generator=torch.Generator().manual_seed(seed))


def weights_of(model, seed=1):
    return model.layout.weights(*model.layout.split(initial_vector(model, seed)))


NAMES = {
    "self_attn.in_proj_weight": "0.body.1.project.weight", "self_attn.in_proj_bias": "0.body.1.project.bias",
    "self_attn.out_proj.weight": "0.body.1.out.weight", "self_attn.out_proj.bias": "0.body.1.out.bias",
    "norm1.weight": "0.body.0.weight", "norm1.bias": "0.body.0.bias",
    "norm2.weight": "1.body.0.weight", "norm2.bias": "1.body.0.bias",
    "linear1.weight": "1.body.1.weight", "linear1.bias": "1.body.1.bias",
    "linear2.weight": "1.body.3.weight", "linear2.bias": "1.body.3.bias",
}  # fmt: skip
"""PyTorch's names of a layer's tensors, and edgefl's."""


def test_its_layers_are_those_of_pytorch(model):
    weights = weights_of(model)
    layer = nn.TransformerEncoderLayer(
        WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )
    assert set(NAMES.values()) == set(weights[1])
    layer.load_state_dict({theirs: weights[1][mine] for theirs, mine in NAMES.items()})
    tap = model.taps(weights, characters(3))[0]
    mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
    expected = layer(tap, src_mask=mask, is_causal=True)
    torch.testing.assert_close(model.apply_blocks(weights, tap, start=1, stop=2), expected, rtol=1e-4, atol=1e-5)


def flattened(outputs, labels):
    """The logits and the labels of the places that count, as a batch."""
    return outputs[labels >= 0], labels[labels >= 0]


@pytest.mark.parametrize("method", ["fedmlb", "fedbr", "kd"])
def test_places_that_count_are_the_samples_of_losses_that_compare_predictions(method):
    spec = MODELS["char_transformer"](width=WIDTH, heads=HEADS, layers=2)
    model = build_model(spec, (LENGTH,), CHARACTERS, LanguageModel())
    objective = build_method(method, LocalOptions()).objective
    objective.adapt(model)
    local, received, x = weights_of(model, 1), weights_of(model, 2), characters(5)
    y = torch.where(torch.arange(LENGTH) < torch.tensor([[7], [4], [0], [1], [6]]), characters(5, 3), -100)
    found = objective.loss(local, Batch(x, y), Context(model, {"received": received}, {}, {}, alpha=2))
    main, targets = flattened(model.apply_blocks(local, x), y)
    paths = [(*local[:m], *received[m:]) for m in {"fedmlb": (1, 2, 3), "fedbr": (2, 3), "kd": (0,)}[method]]
    others = [flattened(model.apply_blocks(path, x), y)[0] for path in paths]
    plain = nn.functional.cross_entropy(main, targets)
    hard = sum(nn.functional.cross_entropy(each, targets) for each in others) / len(paths)
    gap = partial(nn.functional.kl_div, reduction="batchmean", log_target=True)
    soft = sum(gap(main.log_softmax(1), each.log_softmax(1)) for each in others) / len(paths)
    wanted = 0.8 * plain + 0.2 * soft if method == "kd" else plain + hard + soft
    assert len(targets) == 18
    torch.testing.assert_close(found.cross_entropy, plain)
    torch.testing.assert_close(found.total, wanted)


def test_fedalign_s_sub_block_is_a_layer_of_pytorch_with_the_first_heads():
    """A quarter of 32 numbers is one of four heads; every tensor has its leading numbers, those of q, k and v apart."""
    model = build_model(MODELS["char_transformer"](width=32, heads=4, layers=2), (LENGTH,), CHARACTERS, LanguageModel())
    weights, x, y = weights_of(model), characters(3), characters(3, 1)
    before, after = model.taps(weights, x)[1:3]
    layer = nn.TransformerEncoderLayer(8, 1, 32, 0.0, "gelu", batch_first=True, norm_first=True)
    leading = {}
    for theirs, shape in ((name, each.shape) for name, each in layer.state_dict().items()):
        parts = weights[2][NAMES[theirs]].chunk(3 if "in_proj" in theirs else 1)
        leading[theirs] = torch.cat([part[: shape[0] // len(parts)] for part in parts])[..., : shape[-1]]
    layer.load_state_dict(leading)
    mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
    narrow = layer(before[..., :8], src_mask=mask, is_causal=True)
    with using(width=0.25):
        torch.testing.assert_close(model.apply_blocks(weights, before[..., :8], 2, 3), narrow, rtol=1e-4, atol=1e-5)
    objective = build_method({"method": "fedalign", "rescale": False, "mu": 1.0}, LocalOptions()).objective
    found = objective.loss(weights, Batch(x, y), Context(objective.adapt(model), {}, {}, {}, 4))
    pairs = (before, after), (before[..., :8], narrow)
    norms = [torch.linalg.matrix_norm(torch.einsum("nla,nlb->nab", *pair) / LENGTH, 2) for pair in pairs]
    torch.testing.assert_close(
        found.total - found.cross_entropy, ((norms[0] - norms[1]) ** 2).mean(), rtol=0.02, atol=0
    )


def test_no_position_sees_what_comes_after_it(model):
    weights = weights_of(model)
    inputs = characters(2)
    changed = inputs.clone()
    changed[:, 4:] = (changed[:, 4:] + 1) % CHARACTERS
    for before, after in zip(model.taps(weights, inputs)[:-1], model.taps(weights, changed)[:-1], strict=True):
        assert torch.equal(before[:, :4], after[:, :4])
        assert not torch.equal(before[:, 4:], after[:, 4:])


def test_clients_side_by_side_have_the_gradients_that_they_have_alone(model):
    inputs, labels = torch.stack([characters(4, seed) for seed in range(3)]), torch.arange(12).reshape(3, 4)
    vectors = torch.stack([initial_vector(model, seed) for seed in range(3)])

    def loss(vector, batch, label):
        return nn.functional.cross_entropy(model.apply_blocks(model.layout.weights(vector), batch), label)

    together = vmap(grad(loss))(vectors, inputs, labels)
    for vector, batch, label, found in zip(vectors, inputs, labels, together, strict=True):
        torch.testing.assert_close(found, grad(loss)(vector, batch, label), rtol=1e-3, atol=1e-5)


def test_blocks_are_embedding_layers_and_classifier(model):
    assert model.layout.block_names == ("embedding", "layer1", "layer2", "classifier")
    assert model.features(torch.zeros(1, *model.tap_shapes[-2])).shape == (1, WIDTH)
    assert model.residual_count == 4
    with pytest.raises(UserError, match="sequences of characters"):
        build_model(MODELS["char_transformer"](), (1, 8, 8), 10)
    with pytest.raises(UserError, match="do not divide"):
        build_model(MODELS["char_transformer"](width=10, heads=4), (5,), 10)


def test_layer_macs_are_those_of_its_matrices(model):
    cost = measure(model, build_method("fedavg", LocalOptions()), model.depth, 1)
    by_hand = 2 * LENGTH * (3 + 1 + 8) * WIDTH**2 + WIDTH * CHARACTERS
    assert cost.layer_macs == by_hand
    # Scores and mixtures are products as well, each L² · width a layer.
    assert cost.forward_macs == by_hand + 2 * 2 * LENGTH**2 * WIDTH
