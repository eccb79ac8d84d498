"""What ends a run before it was to is said in its summary and below the table."""

from __future__ import annotations

import json

import pytest

from edgefl.cli.entry import main
from edgefl.experiment import run

LITTLE_MEMORY = {"profile": "raspberry-pi-5", "share": 1, "link": "5g", "overrides": {"memory": {"training": "1 kB"}}}
LITTLE_CHARGE = {"profile": "phone-flagship", "share": 1, "link": "5g", "overrides": {"battery": {"capacity": "1 J"}}}
ACCIDENTS = {"profile": "raspberry-pi-5", "share": 1, "link": "5g", "dropout": 1}

IN_VAIN = "no update arrived in 10 consecutive rounds"
NO_CLIENT = "no client can take part, now or later"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"protocol__deadline": "1 ms"}, f"{IN_VAIN}: 20 were late"),
        pytest.param(
            {"fleet": [LITTLE_MEMORY]}, f"{IN_VAIN}: 20 were refused (not enough memory)", marks=pytest.mark.full
        ),
        pytest.param({"fleet": [ACCIDENTS]}, f"{IN_VAIN}: 20 dropped out (accident)", marks=pytest.mark.full),
        ({"fleet": [LITTLE_CHARGE]}, NO_CLIENT),
        (
            {"fleet": [LITTLE_MEMORY], "protocol__kind": "asynchronous"},
            "no client is available: 4 were refused (not enough memory)",
        ),
    ],
)
def test_why_a_run_stalls_is_told(small, tmp_path, capsys, changes, message):
    scenario = small(training__rounds=30, training__cohort=2, data__clients=4, budgets=None, **changes)
    folder = run(scenario, out=tmp_path / "run", train=False)
    (entry,) = json.loads((folder / "summary.json").read_text())["methods"]["fedavg"]
    assert entry["stop"]["reason"] == "stalled"
    assert entry["stop"]["message"] == message
    assert main(["report", str(folder)]) == 0
    assert f"fedavg ended by a stall: {message}." in capsys.readouterr().out
    assert main(["report", str(folder), "--json"]) == 0
    (row, *_) = json.loads(capsys.readouterr().out)["rows"]
    assert row["stop"] == [{"reason": "stalled", "seeds": 1, "message": message}]
