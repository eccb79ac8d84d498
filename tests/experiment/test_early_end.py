"""Runs that end early: dead links, no client, no update."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from edgefl.cli.entry import main
from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.report import RunResult, verdict
from edgefl.rerun.verify import verify

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
    assert f"fedavg: ended by stall: {message}." in words(capsys.readouterr().out)
    assert main(["report", str(folder), "--json"]) == 0
    (row, *_) = json.loads(capsys.readouterr().out)["rows"]
    assert row["stop"] == [{"reason": "stalled", "seeds": 1, "message": message}]


@pytest.mark.parametrize("protocol", [{}, {"kind": "asynchronous"}])
def test_a_link_without_capacity_stalls_the_run(small, tmp_path, protocol):
    scenario = small(network__topology__server__up=0, protocol=protocol)
    folder = run(scenario, out=tmp_path / "run", train=False)
    entry = json.loads((folder / "summary.json").read_text())["methods"]["fedavg"][0]
    assert (entry["stop"]["reason"], entry["stop"]["round"]) == ("stalled", 0)
    assert entry["stop"]["message"] == "all active transfers are on links with zero capacity"
    assert entry["bytes"]["down"] > 0
    assert entry["bytes"]["up"] == 0
    assert verify(folder) == []


def test_rates_and_times_beyond_reason_are_refused(small):
    with pytest.raises(UserError, match="expected 0 or at least 1 bit/s"):
        small(network__topology__server__up="1e-9 bit/s")
    with pytest.raises(UserError, match=r"latency: expected 1e\+10 or less"):
        small(network__topology__latency="1e300 s")


ENOUGH_MEMORY = {"profile": "raspberry-pi-4", "share": 1, "link": "5g"}


def entries(folder: Path):
    return json.loads((folder / "summary.json").read_text())["methods"]["fedavg"]


def words(text: str) -> str:
    """The text without the line breaks of a narrow terminal."""
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("changes", "refused", "told"),
    [
        (
            {"fleet": [LITTLE_MEMORY]},
            12,
            ["refused jobs, for which a device has too little memory", "rounds without an update: 4"],
        ),
        ({"protocol__deadline": "1 ms"}, 0, ["rounds without an update: 4"]),
    ],
)
def test_a_run_in_which_nobody_trains_says_so(small, tmp_path, capsys, changes, refused, told):
    folder = run(small(**changes), out=tmp_path / "run", train=False)
    (entry,) = entries(folder)
    assert (entry["stop"]["reason"], entry["rounds"]) == ("rounds", 4)
    assert (entry["refused"], entry["rounds_without_update"]) == (refused, 4)
    assert main(["report", str(folder)]) == 0
    below = words(capsys.readouterr().out)
    assert all(sentence in below for sentence in told)
    assert ("refused" in below) == bool(refused)
    assert main(["report", str(folder), "--html", str(tmp_path / "page.html")]) == 0
    assert all(sentence in (tmp_path / "page.html").read_text() for sentence in told)
    capsys.readouterr()
    assert main(["report", str(folder), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["refused"]["mean"], row["rounds_without_update"]["mean"]) == (refused, 4)
    assert verify(folder) == []


@pytest.mark.full
@pytest.mark.parametrize("protocol", [{}, {"kind": "asynchronous"}])
def test_the_counts_are_those_of_the_rounds_and_of_all_seeds_together(small, tmp_path, capsys, protocol):
    fleet = [{**LITTLE_MEMORY, "share": 0.5}, {**ENOUGH_MEMORY, "share": 0.5}]
    folder = run(small(fleet=fleet, seeds=[0, 1, 2], protocol=protocol), out=tmp_path / "run", train=False)
    counted = 0
    for entry in entries(folder):
        rounds = pq.read_table(folder / "fedavg" / f"seed-{entry['seed']}" / "rounds.parquet").to_pydict()
        assert entry["refused"] == sum(rounds["refused"]) > 0
        assert entry["rounds_without_update"] == rounds["aggregated"].count(0)
        counted += entry["refused"]
    assert main(["report", str(folder)]) == 0
    assert f"names the devices): {counted}" in words(capsys.readouterr().out)
    assert verify(folder) == []


def test_a_budget_on_a_clients_bytes_below_the_first_round_leaves_the_last_one(small, tmp_path):
    folder = run(small(budgets={"client_bytes": 1.0}), out=tmp_path / "run")
    assert verdict(RunResult(folder)).startswith("Best after 4 rounds:  fedavg")
