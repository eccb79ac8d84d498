"""``edgefl bench training``: figures for people and for machines."""

from __future__ import annotations

import json

from edgefl.cli import main


def test_json_holds_the_ratios_of_each_case(capsys):
    assert main(["bench", "training", "--quick", "--case", "cnn", "--engine", "sequential", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (case,) = found["cases"]
    assert case["case"] == "cnn"
    assert case["rows"][0]["name"] == "sequential"
    assert all(row["to_centralised_same_batch"] > 0 for row in case["rows"])


def test_the_table_names_the_case_and_a_wrong_name_is_wrong_input(capsys):
    arguments = ["bench", "training", "--quick", "--case", "cnn", "--engine", "sequential", "--method", "fedprox"]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "cnn: cohort 4 x batch 10, 2 local steps" in printed
    assert "fedprox: " in printed
    assert main(["bench", "training", "--case", "resnet1"]) == 2
    assert "resnet18" in capsys.readouterr().err
