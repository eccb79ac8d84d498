"""Each codec alone: what arrives, how far it is from what was sent, and how many bytes it took."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.errors import UserError
from edgefl.methods.codecs.base import NoCodec
from edgefl.methods.codecs.cast import Cast
from edgefl.methods.codecs.choice import Codecs
from edgefl.methods.codecs.quantise import Quantise
from edgefl.methods.codecs.top_k import TopK
from edgefl.validation import validated

EVERY = [
    NoCodec(),
    Cast(),
    Cast(to="bfloat16"),
    *(
        Quantise(bits=bits, scale=scale, rounding=rounding)
        for bits in (8, 4)
        for scale in ("tensor", "channel")
        for rounding in ("nearest", "stochastic")
    ),
    *(TopK(fraction=fraction) for fraction in (0.001, 0.1, 1.0)),
]
every = pytest.mark.parametrize("one", EVERY, ids=repr)
shapes = st.lists(st.integers(1, 9), min_size=1, max_size=4).map(torch.Size)


def numbers(seed=0):
    return np.random.default_rng(seed)


def drawn(shape, seed=0, scale=1.0):
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def sent(one, tensor, seed=0):
    return one.decode(one.encode(tensor, numbers(seed)), tensor.shape)


@every
@given(shape=shapes, seed=st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_the_bytes_known_beforehand_are_the_bytes_of_what_is_sent(one, shape, seed):
    encoded = one.encode(drawn(shape, seed), numbers(seed))
    assert sum(part.numel() * part.element_size() for part in encoded.values()) == one.bytes(shape)


@every
def test_zeros_arrive_as_zeros_of_the_shape_and_type_of_what_was_sent(one):
    arrived = sent(one, torch.zeros(3, 7))
    assert torch.equal(arrived, torch.zeros(3, 7))
    assert arrived.dtype == torch.float32


@every
def test_what_is_not_finite_does_not_arrive_as_if_nothing_had_happened(one):
    tensor = drawn((3, 7))
    tensor[1, 2] = torch.nan
    assert not torch.isfinite(sent(one, tensor)).all()
    tensor[1, 2] = torch.inf
    assert not torch.isfinite(sent(one, tensor)).all()


@pytest.mark.parametrize("bits", [8, 4])
@given(shape=shapes, seed=st.integers(0, 1000), scale=st.sampled_from([1e-20, 1e-3, 1.0, 1e10]))
@settings(max_examples=25, deadline=None)
def test_quantising_errs_by_half_a_step_at_most_or_a_whole_one_by_chance(bits, shape, seed, scale):
    tensor = drawn(shape, seed, scale)
    step = tensor.abs().max() / (2 ** (bits - 1) - 1)
    slack = 1 + 1e-4
    assert (sent(Quantise(bits=bits), tensor) - tensor).abs().max() <= slack * step / 2
    assert (sent(Quantise(bits=bits, rounding="stochastic"), tensor, seed) - tensor).abs().max() <= slack * step
    steps = tensor.reshape(shape[0], -1).abs().amax(1) / (2 ** (bits - 1) - 1)
    by_channel = sent(Quantise(bits=bits, scale="channel"), tensor)
    if len(shape) > 1:
        assert ((by_channel - tensor).reshape(shape[0], -1).abs().amax(1) <= slack * steps / 2).all()


@pytest.mark.parametrize("bits", [8, 4])
def test_rounding_to_the_nearest_is_torchs_own_fake_quantisation(bits):
    tensor, top = drawn((6, 5, 3, 3)), 2 ** (bits - 1) - 1
    whole = torch.fake_quantize_per_tensor_affine(tensor, float(tensor.abs().max() / top), 0, -top, top)
    torch.testing.assert_close(sent(Quantise(bits=bits), tensor), whole, rtol=1e-6, atol=1e-7)
    scales = tensor.flatten(1).abs().amax(1) / top
    rows = torch.fake_quantize_per_channel_affine(tensor, scales, torch.zeros(6, dtype=torch.int32), 0, -top, top)
    torch.testing.assert_close(sent(Quantise(bits=bits, scale="channel"), tensor), rows, rtol=1e-6, atol=1e-7)


def test_rounding_by_chance_has_no_bias_and_rounding_to_the_nearest_has():
    tensor = torch.cat([torch.full((20_000,), 0.3), torch.tensor([7.0])])
    arrived = sent(Quantise(bits=4, rounding="stochastic"), tensor)
    # Steps of 1: each is 1 with probability 0.3, so the mean is within five standard errors of it.
    assert set(arrived[:-1].tolist()) == {0.0, 1.0}
    assert abs(float(arrived[:-1].mean()) - 0.3) < 5 * (0.3 * 0.7 / 20_000) ** 0.5
    assert float(sent(Quantise(bits=4), tensor)[:-1].mean()) == 0.0


@given(shape=shapes, seed=st.integers(0, 1000), fraction=st.floats(0.001, 1.0))
@settings(max_examples=30, deadline=None)
def test_top_k_sends_the_k_largest_as_they_are_and_zeros_for_the_rest(shape, seed, fraction):
    tensor, one = drawn(shape, seed), TopK(fraction=fraction)
    arrived = sent(one, tensor)
    kept = arrived != 0
    assert int(kept.sum()) == one.kept(shape) >= fraction * shape.numel() - 1e-5
    assert torch.equal(arrived[kept], tensor[kept])
    left_out = tensor[~kept].abs()
    assert not len(left_out) or left_out.max() <= arrived[kept].abs().min()


@pytest.mark.parametrize(
    ("one", "shape", "bytes"),
    [
        (NoCodec(), (10, 10), 400),
        (Cast(), (10, 10), 200),
        (Quantise(), (10, 10), 100 + 4),
        (Quantise(scale="channel"), (10, 10), 100 + 40),
        (Quantise(scale="channel"), (10,), 10 + 4),
        (Quantise(bits=4), (3, 3), 5 + 4),
        (Quantise(bits=4, scale="channel"), (3, 3), 5 + 12),
        (TopK(fraction=0.01), (100, 100), 100 * (4 + 4)),
        (TopK(fraction=0.07), (10, 10), 7 * 4 + 13),  # a bit for each of 100 is shorter than seven indices
        (TopK(fraction=0.5), (100, 100), 5000 * 4 + 1250),
    ],
    ids=repr,
)
def test_bytes_by_hand(one, shape, bytes):
    assert one.bytes(torch.Size(shape)) == bytes


def test_float16_holds_what_is_beyond_its_range_there_and_bfloat16_need_not():
    large = torch.tensor([1e6, -1e6, 1.0])
    assert sent(Cast(), large).tolist() == [65504.0, -65504.0, 1.0]
    torch.testing.assert_close(sent(Cast(to="bfloat16"), large), large, rtol=2**-8, atol=0)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"up": {"kind": "topk"}}, "codec.up.*unknown codec 'topk'; did you mean 'top_k'"),
        ({"up": {"bits": 8}}, "kind.*missing; expected one of: cast, none, quantise, top_k"),
        ({"up": {"kind": "quantise", "bits": 3}}, "bits: expected 8 or 4, found 3"),
        ({"up": {"kind": "top_k", "fraction": 0}}, "fraction.*found 0"),
        ({"down": "top_k"}, "codec.down.*sends few of the numbers"),
        ({"upp": "cast"}, "codec.upp"),
        ({"up": 8}, "expected the name of a codec or a mapping"),
    ],
)
def test_nonsense_is_refused_with_its_reason(said, message):
    with pytest.raises(UserError, match=message):
        validated(Codecs, said, field="codec")
