"""The caller's settings of PyTorch change no figure, and are the caller's afterwards."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

import edgefl
from edgefl.planning import plan
from edgefl.rerun.replay import replay
from edgefl.rerun.verify import verify
from edgefl.scenario.loading import check
from edgefl.torch_settings import OF_THE_PROCESS, settings

from ..small_runs import SMALL, tree


@contextmanager
def double():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextmanager
def newer_names_of_precisions():
    """After them, PyTorch refuses to read allow_tf32."""
    matmul, conv = torch.backends.cuda.matmul, torch.backends.cudnn.conv
    before = matmul.fp32_precision, conv.fp32_precision
    matmul.fp32_precision, conv.fp32_precision = "tf32", "ieee"
    try:
        yield
        assert (matmul.fp32_precision, conv.fp32_precision) == ("tf32", "ieee")
    finally:
        matmul.fp32_precision, conv.fp32_precision = before


STATES = {
    "newer names of precisions": newer_names_of_precisions,
    "without gradients": torch.no_grad,
    "inference": torch.inference_mode,
    "double": double,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "other convolutions": lambda: torch.backends.mkldnn.flags(enabled=False),
    "anomalies": torch.autograd.detect_anomaly,
    "another device": lambda: torch.device("meta"),
}


def scenario():
    data = json.loads(json.dumps(SMALL))
    data["training"] |= {"rounds": 2, "engine": {"kind": "sequential"}}
    data["data"] |= {"train": 64, "test": 16}
    return check(data | {"methods": ["fedavg", "fedalign"]})


def figures(folder: Path, scenario):
    """All files of a run and its replay, its violations, and a plan."""
    edgefl.simulate(scenario, out=folder / "run")
    faster = {"network.topology.server.down": "200 Mbit/s"}
    replayed = replay(folder / "run", faster, folder / "replayed")
    return tree(folder / "run"), tree(replayed), verify(folder / "run"), plan(scenario).as_dict()


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return figures(tmp_path_factory.mktemp("plain"), scenario())


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("state", STATES)
def test_a_callers_state_changes_no_byte_of_a_run(plain, state, tmp_path):
    with STATES[state]():
        before = settings(OF_THE_PROCESS)
        found = figures(tmp_path, scenario())
        assert settings(OF_THE_PROCESS) == before
    assert found[2] == []
    assert found == plain
