"""The engine that a run chooses, and the caller's PyTorch settings."""

import json
from contextlib import contextmanager

import pytest
import torch

from edgefl.errors import UserError
from edgefl.experiment import resume, run
from edgefl.scenario import load_scenario
from edgefl.scenario.loading import check
from edgefl.torch_settings import present_values

from ..small_runs import SMALL, Stop, tree

DEFAULT = {"kind": "auto", "precision": "float32"}


def engine_in(folder):
    return load_scenario(folder / "scenario.yaml").training.engine.model_dump()


def test_an_engines_name_alone_is_a_mapping_with_defaults(small):
    assert small(training__engine="parallel").training.engine.model_dump() == {**DEFAULT, "kind": "parallel"}
    assert small().training.engine.model_dump() == DEFAULT


def test_the_commands_engine_replaces_the_scenarios_and_is_written_down(small, tmp_path):
    scenario = small(training__rounds=1, training__engine={"kind": "parallel", "precision": "bfloat16"})
    assert engine_in(run(scenario, out=tmp_path / "own")) == {**DEFAULT, "kind": "parallel", "precision": "bfloat16"}
    other = run(scenario, out=tmp_path / "other", engine="sequential")
    assert engine_in(other) == {**DEFAULT, "kind": "sequential", "precision": "bfloat16"}
    assert (other / "summary.json").read_bytes() == (tmp_path / "own" / "summary.json").read_bytes()


@pytest.mark.full
def test_the_precision_decides_results_and_a_resumed_run_keeps_it(small, tmp_path):
    scenario = small(training__rounds=2, training__engine={"precision": "bfloat16"})
    whole = run(scenario, out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(scenario, out=tmp_path / "left", listeners=[Stop(1)])
    left = resume(tmp_path / "left")
    assert (left / "summary.json").read_bytes() == (whole / "summary.json").read_bytes()
    exact = run(small(training__rounds=2), out=tmp_path / "exact")
    finals = [(folder / "fedavg" / "seed-0" / "final.safetensors").read_bytes() for folder in (left, whole, exact)]
    assert finals[0] == finals[1] != finals[2]


def test_tf32_is_refused_where_training_runs_on_a_cpu_and_nothing_is_left_behind(small, tmp_path):
    with pytest.raises(UserError, match=r"training\.engine\.precision: tf32 is a precision of CUDA devices"):
        run(small(training__engine={"precision": "tf32"}), out=tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


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
