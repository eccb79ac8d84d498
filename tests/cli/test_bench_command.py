"""``edgefl bench``: figures for people and for machines."""

from __future__ import annotations

import json

import pytest

from edgefl.cli import main


@pytest.mark.full
def test_json_holds_the_ratios_of_each_case(capsys):
    assert main(["bench", "training", "--quick", "--case", "cnn", "--engine", "sequential", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (case,) = found["cases"]
    assert case["case"] == "cnn"
    assert case["rows"][0]["name"] == "sequential"
    assert all(row["to_centralised_same_batch"] > 0 for row in case["rows"])


def test_a_wrong_case_is_refused(capsys):
    assert main(["bench", "training", "--case", "resnet1"]) == 2
    assert "resnet18" in capsys.readouterr().err


@pytest.mark.full
def test_the_table_names_the_case_and_the_methods(capsys):
    arguments = ["bench", "training", "--quick", "--case", "cnn", "--engine", "sequential", "--method", "fedprox"]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "cnn" in printed
    assert "fedprox " in printed


@pytest.mark.full
def test_the_world_is_measured_beside_bare_simpy(capsys):
    assert main(["bench", "simulation", "--quick", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["concurrent"] for row in found["steady"]] == [2, 10, 100]
    # A transfer takes its start, its end and some turns of the agenda: more than one event each.
    assert all(row["events_per_second"] > row["flows_per_second"] > 0 for row in found["steady"])
    assert all(row["bare_events_per_second"] > 0 for row in found["steady"])
    assert [row["cells"] for row in found["rounds"]] == [0, 0, 2]
    assert found["fleet"]["rounds"] == 10
    assert found["fleet"]["written_bytes"] > 0
