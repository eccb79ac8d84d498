"""The benchmarks run and compare what they say; how fast anything is belongs to no test."""

import json

import pytest
import torch

from ..small_runs import SMALL
from .training import CASES, SAME, WHOLE, bench_engines, engines_on
from .training import main as training
from .world import main as world

pytestmark = pytest.mark.full
CPU = torch.device("cpu")


def test_engines_are_compared_with_centralised_training():
    rows = {row["name"]: row for row in bench_engines("cnn", CASES["cnn"].quick(), CPU)["rows"]}
    assert set(rows) == {*engines_on(CPU), SAME, WHOLE}
    assert rows[SAME]["to_centralised_same_batch"] == rows[WHOLE]["to_centralised_cohorts_batch"] == 1
    both = rows["sequential"]["images_per_second"], rows["sequential"]["local_steps_per_second"]
    assert both[0] == pytest.approx(10 * both[1])


def test_json_has_the_ratios_of_each_case_and_a_table_its_name(capsys):
    words = ["--quick", "--case", "cnn", "--engine", "sequential", "--precision", "float32"]
    training([*words, "--json"])
    (case,) = json.loads(capsys.readouterr().out)["cases"]
    assert (case["case"], case["rows"][0]["name"]) == ("cnn", "sequential")
    assert all(row["to_centralised_same_batch"] > 0 for row in case["rows"])
    training(words)
    assert "cnn: cohort 4 x batch 10" in capsys.readouterr().out
    for wrong, message in ((["--case", "resnet1"], "resnet18"), (["--engine", "paralel"], "'parallel'")):
        with pytest.raises(SystemExit):
            training(wrong)
        assert message in capsys.readouterr().err


def test_whole_runs_of_a_scenario_are_timed(tmp_path, capsys):
    (tmp_path / "small.yaml").write_text(json.dumps({**SMALL, "methods": ["fedavg", "fedprox"]}))
    training(["--scenario", str(tmp_path / "small.yaml"), "--quick", "--json"])
    found = json.loads(capsys.readouterr().out)["runs"]
    assert [(row["method"], row["rounds"]) for row in found] == [("fedavg", 2), ("fedprox", 2)]


def test_the_world_is_measured_in_turn_with_simpy_alone(capsys):
    world(["--quick", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [row["concurrent"] for row in found["steady"]] == [2, 10, 100]
    # A transfer takes its start, its end and some turns of the agenda: more than one event each.
    assert all(row["events_per_second"] > row["flows_per_second"] > 0 for row in found["steady"])
    assert all(row["bare_events_per_second"] > 0 for row in found["steady"])
    assert [row["cells"] for row in found["rounds"]] == [0, 0, 2]
    assert found["fleet"]["rounds"] == 10
    assert found["fleet"]["written_bytes"] > 0
