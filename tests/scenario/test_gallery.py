"""Every shipped scenario runs, and its log can be believed."""

from __future__ import annotations

import json

import pytest

from edgefl import shipped
from edgefl.experiment import run
from edgefl.rerun.verify import verify
from edgefl.scenario import load_scenario

GALLERY = [name for name in shipped.files("scenarios") if "/" not in name]


@pytest.mark.parametrize("name", GALLERY)
def test_a_shipped_scenario_runs_three_rounds_and_verifies(name, tmp_path):
    scenario = load_scenario(name, {"training.rounds": 3, "stop": "rounds"})
    scenario = scenario.with_seeds(scenario.seeds[:1])
    labels = [method.label for method in scenario.methods][:8]
    folder = run(scenario, out=tmp_path / "run", methods=labels, train=False)
    assert verify(folder) == []
    methods = json.loads((folder / "summary.json").read_text())["methods"]
    assert {entry[0]["stop"]["reason"] for entry in methods.values()} == {"rounds"}


@pytest.mark.parametrize("name", GALLERY)
def test_a_shipped_scenario_begins_with_what_it_shows(name):
    assert shipped.files("scenarios")[name].read_text(encoding="utf-8").startswith("# ")


def test_front_blocks_are_one_round_old_where_all_clients_take_part_and_old_where_few_do(tmp_path):
    entries = {}
    for name in ("5g_10clients", "5g_100clients"):
        scenario = load_scenario(name, {"stop": "rounds"}).with_seeds([0])
        folder = run(scenario, out=tmp_path / name, methods=["fedavg", "fedbr"], train=False)
        entries[name] = json.loads((folder / "summary.json").read_text())["methods"]
    assert [method.label for method in load_scenario("5g_10clients").methods] == ["fedavg", "fedmlb", "fedbr"]
    few, many = ({label: entry[0] for label, entry in found.items()} for found in entries.values())
    assert few["fedbr"]["blocks"]["front_age"] == 1.0
    assert few["fedbr"]["bytes"]["down"] < 0.85 * few["fedavg"]["bytes"]["down"]
    assert many["fedbr"]["blocks"]["front_age"] > 9.0


def test_overlap_saves_time_where_links_are_slow(tmp_path):
    scenario = load_scenario("fedadc_overlap", {"training.rounds": 6, "stop": "rounds"}).with_seeds([0])
    folder = run(scenario, out=tmp_path / "run", methods=["fedadc", "fedadc-overlap"], train=False)
    methods = json.loads((folder / "summary.json").read_text())["methods"]
    assert methods["fedadc-overlap"][0]["seconds"] < 0.9 * methods["fedadc"][0]["seconds"]


def test_a_slow_station_slows_its_hall_only_under_rate_fairness(tmp_path):
    seconds = {}
    for sharing in ("rate_fair", "airtime_fair"):
        changes = {"training.rounds": 6, "network.topology.sharing": sharing}
        folder = run(load_scenario("factory_wifi", changes), out=tmp_path / sharing, methods=["fedavg"], train=False)
        events = json.loads((folder / "summary.json").read_text())["methods"]["fedavg"][0]
        seconds[sharing] = events["seconds"]
    assert seconds["rate_fair"] != seconds["airtime_fair"]
