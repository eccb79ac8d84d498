"""A run whose clients keep their batch norm: bytes, resumption, replay, verification, evaluation on each client."""

from __future__ import annotations

import json

import pytest

from edgefl.experiment import resume, run
from edgefl.rerun.replay import replay
from edgefl.rerun.verify import verify

from ..small_runs import Stop, tree

FEDBR = {"method": "fedbr", "scheduler": {"kind": "fixed", "alpha": 2}}


@pytest.fixture
def fedbn(small):
    def made(**changes):
        model = {"name": "cnn", "width": 2, "norm": "batch", "local": ["conv1.1", "conv2.1"]}
        return small(**{"model": model, "data.test": "partitioned", "methods": ["fedavg", FEDBR], **changes})

    return made


@pytest.mark.full
def test_such_a_run_resumes_replays_and_verifies(fedbn, tmp_path):
    expected = tree(run(fedbn(), out=tmp_path / "expected"))
    with pytest.raises(KeyboardInterrupt):
        run(fedbn(), out=tmp_path / "run", listeners=[Stop(3)])
    assert tree(resume(tmp_path / "run")) == expected
    assert verify(tmp_path / "run") == []
    links = {"network.links": {"5g": {"down": "5 Mbit/s", "up": "5 Mbit/s"}}}
    assert verify(replay(tmp_path / "run", links, tmp_path / "replayed")) == []


@pytest.mark.full
def test_clients_that_miss_a_deadline_keep_their_part(fedbn, tmp_path):
    changes = {"protocol": {"kind": "synchronous", "deadline": "0.05 s"}, "methods": ["fedavg"]}
    expected = tree(run(fedbn(**changes), out=tmp_path / "expected"))
    with pytest.raises(KeyboardInterrupt):
        run(fedbn(**changes), out=tmp_path / "run", listeners=[Stop(2)])
    assert tree(resume(tmp_path / "run")) == expected
    assert verify(tmp_path / "run") == []


@pytest.mark.full
@pytest.mark.parametrize("protocol", [pytest.param("asynchronous", marks=pytest.mark.full), "synchronous"])
def test_each_client_is_tested_with_its_own_part(fedbn, tmp_path, protocol):
    changes = {"protocol": {"kind": protocol}, "methods": ["fedavg"], "training.rounds": 6, "training.local.epochs": 4}
    plain = {"name": "cnn", "width": 2, "norm": "batch"}
    personal = {"personalisation": {"kind": "calibration", "epochs": 1}}
    runs = [
        json.loads((run(fedbn(**changes, **more), out=tmp_path / name) / "summary.json").read_text())["methods"][
            "fedavg"
        ][0]
        for name, more in (("local", personal), ("averaged", {"model": plain, **personal}))
    ]
    assert runs[0]["bytes"]["up"] < runs[1]["bytes"]["up"]
    assert runs[0]["clients"] != runs[1]["clients"]
    # Two classes a client: statistics of its own data fit better than those of all.
    assert runs[0]["clients"]["mean"] > runs[0]["accuracy"]["final"]
