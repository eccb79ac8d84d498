"""A run whose clients keep their batch norm: bytes, evaluation on each client."""

from __future__ import annotations

import json

import pytest

from edgefl.experiment import run

from ..small_runs import LOCAL_PART


@pytest.fixture
def fedbn(small):
    def made(**changes):
        return small(**{**LOCAL_PART, **changes})

    return made


@pytest.mark.full
@pytest.mark.parametrize("protocol", ["asynchronous", "synchronous"])
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
