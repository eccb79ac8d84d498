"""Random functions draw from a key with the distributions of PyTorch, and leave its global generator alone."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edgefl.cost.measure import trace
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.models.ordinary import OrdinaryModel
from edgefl.models.random_layers import RandomFunctions
from edgefl.models.registry import build_model

LINE = torch.linspace(-2, 2, 41).repeat(500, 1)
MAPS = torch.linspace(-1, 1, 6)[None, :, None].repeat(4000, 1, 3)
QUERY, KEY, VALUE = torch.randn(3, 1, 2, 5, 4, generator=torch.Generator().manual_seed(0)).expand(3, 3000, 2, 5, 4)

FUNCTIONS = {
    "dropout": lambda: F.dropout(LINE, 0.3),
    "dropout of channels": lambda: F.dropout2d(MAPS[..., None], 0.3),
    "alpha dropout": lambda: F.alpha_dropout(LINE, 0.3, training=True),
    "feature alpha dropout": lambda: F.feature_alpha_dropout(MAPS, 0.3, training=True),
    "randomised relu": lambda: F.rrelu(LINE, training=True),
    "gumbel softmax": lambda: F.gumbel_softmax(LINE[:, ::10], 0.7),
    "hard gumbel softmax": lambda: F.gumbel_softmax(LINE[:, ::10], 0.7, hard=True),
    "normal_": lambda: torch.empty(500, 41).normal_(2, 3),
    "uniform_": lambda: torch.empty(500, 41).uniform_(-1, 5),
    "exponential_": lambda: torch.empty(500, 41).exponential_(2.0),
    "bernoulli_": lambda: torch.zeros(500, 41).bernoulli_(0.2),
    "normal": lambda: torch.normal(LINE, 0.5),
    "normal, sized": lambda: torch.normal(1.0, 2.0, size=(500, 41)),
    "randperm": lambda: torch.stack([torch.randperm(7) for _ in range(2000)]).float(),
    "a normal distribution": lambda: torch.distributions.Normal(LINE, 1 + LINE**2).rsample(),
    "attention": lambda: F.scaled_dot_product_attention(QUERY, KEY, VALUE, dropout_p=0.3),
    "causal attention": lambda: F.scaled_dot_product_attention(QUERY, KEY, VALUE, dropout_p=0.3, is_causal=True),
    "masked attention": lambda: F.scaled_dot_product_attention(QUERY, KEY, VALUE, torch.arange(5) < 4, dropout_p=0.3),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_random_function_has_pytorchs_distribution_and_is_determined_by_the_key(name):
    drawn = FUNCTIONS[name]
    torch.manual_seed(1)
    expected, state = drawn(), torch.get_rng_state()
    with RandomFunctions(torch.tensor(5)):
        first = drawn()
    with RandomFunctions(torch.tensor(5)):
        assert torch.equal(first, drawn())
    with RandomFunctions(torch.tensor(6)):
        assert not torch.equal(first, drawn())
    assert torch.equal(torch.get_rng_state(), state)
    # Means and deviations over the first dimension, at each place: within five standard errors.
    error = 5 * expected.std(0) / len(expected) ** 0.5 + 1e-3
    assert ((first.mean(0) - expected.mean(0)).abs() <= 2**0.5 * error).all()
    assert ((first.std(0) - expected.std(0)).abs() <= 3 * error).all()


def test_multi_head_attention_drops_weights_by_the_key():
    """Its own dropout is within a function of PyTorch that is replaced as a whole."""
    torch.manual_seed(0)
    layer, inputs = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True), torch.randn(1, 5, 8)
    many, state = inputs.expand(3000, 5, 8), torch.get_rng_state()
    with RandomFunctions(torch.tensor(5)), torch.no_grad():
        first = layer(many)
    assert torch.equal(torch.get_rng_state(), state)
    with RandomFunctions(torch.tensor(5)), torch.no_grad():
        torch.testing.assert_close(layer(many), first)
    with torch.no_grad():
        expected = layer(many)
    torch.testing.assert_close(first.mean(0), expected.mean(0), atol=0.06, rtol=0)
    torch.testing.assert_close(first.std(0), expected.std(0), atol=0.06, rtol=0)


class Attention(nn.Module):
    """Attention over 64 places, whose weights are dropped in training."""

    def __init__(self):
        super().__init__()
        self.project, self.head = nn.Linear(32, 96), nn.Linear(32, 3)

    def forward(self, inputs):
        places = self.project(inputs.view(len(inputs), 64, 32)).view(len(inputs), 64, 3, 4, 8)
        query, key, value = places.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=0.1 if self.training else 0.0)
        return self.head(mixed.transpose(1, 2).flatten(2).mean(1))


class WithAttention(OrdinaryModel):
    def module(self, sample_shape, classes):
        return Attention()


def test_dropped_attention_is_counted_in_parts_on_a_cpu_and_fused_on_cuda(recwarn):
    model = build_model(WithAttention(), (64 * 32,), 3)
    parts, fused = (
        trace(model, build_method("fedavg", LocalOptions()), model.depth, 4, backend=backend).cost
        for backend in ("cpu", "cuda")
    )
    weights = 4 * 4 * 64 * 64 * 4  # bytes of one array of attention weights
    assert parts.peak_memory_bytes - fused.peak_memory_bytes > 2 * weights
    assert parts.launches > fused.launches
    assert not [str(each.message) for each in recwarn if "random" in str(each.message)]
