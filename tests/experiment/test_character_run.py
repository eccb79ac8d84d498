"""Speakers' devices learn to write: the text model from file to summary."""

from __future__ import annotations

import json

import pytest

from edgefl.experiment import run


@pytest.mark.full
def test_speakers_learn_what_comes_next(small, tmp_path):
    folder = tmp_path / "data" / "tinyshakespeare"
    folder.mkdir(parents=True)
    speeches = [f"S{number}:\n" + ("to be or not to be " * (12 + number)) for number in range(4)]
    (folder / "input.txt").write_text("\n\n".join(speeches), encoding="utf-8")
    scenario = small(
        data={
            "name": "shakespeare", "root": str(tmp_path / "data"), "clients": 4, "window": 12, "stride": 1,
            "test": "partitioned",
        },
        model={"name": "char_transformer", "width": 16, "heads": 2, "layers": 1},
        training__local__lr=0.2,
        methods=["fedavg", "fedbr"],
        personalisation={"kind": "calibration"},
    )  # fmt: skip
    first = run(scenario, out=tmp_path / "run")
    summary = json.loads((first / "summary.json").read_text())["methods"]
    for label, (entry,) in summary.items():
        assert entry["stop"]["reason"] == "rounds", label
        assert 0 <= entry["personalisation"]["mean"] <= 1
    assert summary["fedavg"][0]["accuracy"]["best"] > 0.3
    timed = run(scenario, out=tmp_path / "timed", train=False)
    seconds = [
        json.loads((each / "summary.json").read_text())["methods"]["fedavg"][0]["seconds"] for each in (first, timed)
    ]
    assert seconds[0] == seconds[1]
