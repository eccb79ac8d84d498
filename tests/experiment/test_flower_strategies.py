"""Runs whose server is a Flower strategy: resumption, verification, replay, protocols, codecs, partial models."""

import json
from importlib import metadata

import pytest

from edgefl.errors import UserError
from edgefl.experiment import resume, run
from edgefl.rerun.replay import replay
from edgefl.rerun.verify import verify

from ..flower.runs import needs_flwr
from ..small_runs import Stop, tree

pytestmark = needs_flwr

METHODS = [
    {"method": "fedavg", "as": "trimmed", "server": {"flower": "FedTrimmedAvg", "beta": 0.4}},
    {"method": "fedavg", "as": "adam", "server": {"flower": "FedAdam", "eta": 0.01}},
    {"method": "fedavg", "as": "momentum", "server": {"flower": "FedAvgM", "server_momentum": 0.5}},
    {"method": "fedavg", "as": "fair", "server": {"flower": "QFedAvg", "q": 1}},
    {"method": "fedbr", "as": "blocks", "server": {"flower": "FedMedian"}},
    {"method": "fedavg", "as": "sparse", "codec": {"up": {"kind": "top_k", "fraction": 0.1}},
     "server": {"flower": "Krum"}},
]  # fmt: skip
PROTOCOLS = {"synchronous": {"kind": "synchronous"}, "asynchronous": {"kind": "asynchronous", "buffer": 3}}
BATCH_NORM = {"name": "cnn", "width": 2, "norm": "batch"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_such_a_run_resumes_to_the_same_bytes_and_verifies(small, tmp_path, protocol):
    scenario = small(methods=METHODS, model=BATCH_NORM, protocol=PROTOCOLS[protocol], training__cohort=5)
    expected = tree(run(scenario, out=tmp_path / "expected"))
    with pytest.raises(KeyboardInterrupt):
        run(scenario, out=tmp_path / "run", listeners=[Stop(11)])
    assert tree(resume(tmp_path / "run")) == expected
    assert verify(tmp_path / "expected") == []


def test_such_a_run_is_replayed_on_another_network(small, tmp_path):
    folder = run(small(methods=METHODS[:2]), out=tmp_path / "run")
    links = {"network.links": {"5g": {"down": "5 Mbit/s", "up": "5 Mbit/s"}}}
    assert verify(replay(folder, links, tmp_path / "replayed")) == []


def test_the_version_of_flower_is_recorded(small, tmp_path):
    folder = run(small(methods=METHODS[:1]), out=tmp_path / "run", train=False)
    assert json.loads((folder / "summary.json").read_text())["software"]["flwr"] == metadata.version("flwr")


def test_parameters_that_stay_local_need_a_strategy_of_the_mean(small, tmp_path):
    model = {**BATCH_NORM, "local": ["conv1.1"]}
    with pytest.raises(UserError, match="needs all parameters of the model from each client, and clients keep some"):
        run(small(model=model, methods=METHODS[:1]), out=tmp_path / "refused")
    assert verify(run(small(model=model, methods=METHODS[1:2]), out=tmp_path / "run")) == []
