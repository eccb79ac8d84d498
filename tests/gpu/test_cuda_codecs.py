"""Codecs on a CUDA device: the CPU's bytes and numbers."""

import numpy as np
import pytest
import torch

from edgefl.methods.codecs.choice import codec

from .device import DEVICE, THERE_IS_NONE

pytestmark = [pytest.mark.gpu, THERE_IS_NONE]


@pytest.mark.parametrize(
    "said",
    [
        "none",
        "cast",
        {"kind": "cast", "to": "bfloat16"},
        "quantise",
        {"kind": "quantise", "bits": 4, "scale": "channel", "rounding": "stochastic"},
        {"kind": "top_k", "fraction": 0.01},
        {"kind": "top_k", "fraction": 0.2},
    ],
    ids=str,
)
def test_a_codec_gives_what_it_gives_on_the_cpu(said):
    one = codec(said)
    tensor = torch.randn(33, 5, 3, 3, generator=torch.Generator().manual_seed(1))
    here = one.encode(tensor, np.random.default_rng(0))
    there = one.encode(tensor.to(DEVICE), np.random.default_rng(0))
    assert {name: part.dtype for name, part in here.items()} == {name: part.dtype for name, part in there.items()}
    for name, part in here.items():
        torch.testing.assert_close(there[name].cpu(), part)
    torch.testing.assert_close(one.decode(there, tensor.shape).cpu(), one.decode(here, tensor.shape))
