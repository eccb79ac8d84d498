"""The caller's settings of PyTorch that change numbers change no byte of a run, and are the caller's afterwards."""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest
import torch

from edgefl.experiment import run
from edgefl.scenario.loading import check
from edgefl.torch_settings import present_values

from ..small_runs import SMALL, tree


@contextmanager
def double():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


STATES = {
    "without gradients": torch.no_grad,
    "double": double,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "other convolutions": lambda: torch.backends.mkldnn.flags(enabled=False),
    "another device": lambda: torch.device("meta"),
}


def files(folder):
    data = json.loads(json.dumps(SMALL))
    data["training"] |= {"rounds": 2, "engine": {"kind": "sequential"}}
    data["data"] |= {"train": 64, "test": 16}
    return tree(run(check(data | {"methods": ["fedalign"]}), out=folder))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return files(tmp_path_factory.mktemp("plain") / "run")


@pytest.mark.parametrize(
    "state", ["double", *(pytest.param(s, marks=pytest.mark.full) for s in STATES if s != "double")]
)
def test_a_callers_state_changes_no_byte_of_a_run(plain, state, tmp_path):
    with STATES[state]():
        before = present_values()
        assert files(tmp_path / "run") == plain
        assert present_values() == before
