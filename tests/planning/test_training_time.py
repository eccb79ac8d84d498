"""The time of training on this machine, extrapolated from three timed rounds."""

import json

import pytest
from typer.testing import CliRunner

from edgefl.cli.entry import app
from edgefl.planning import training_time
from edgefl.planning.planning import plan
from edgefl.planning.training_time import training_times


def test_a_round_is_extrapolated_from_rounds_of_one_and_of_five_steps(small, monkeypatch):
    scenario = small(training__rounds=8)
    # Rounds of 1, 1 and 5 steps take 9, 3 and 11 s: a step takes 2 s. A client has 40 images, three steps of 16.
    clock = iter([0.0, 9.0, 10.0, 13.0, 20.0, 31.0])
    monkeypatch.setattr(training_time, "perf_counter", lambda: next(clock))
    made = plan(scenario)
    (found,) = training_times(scenario, made, "cpu")
    assert found.seconds == 9 + 8 * (3 + 2 * 2)
    assert found.step_seconds == pytest.approx(2 / scenario.training.cohort)
    assert found.simulated == pytest.approx(8 * made.methods[0].seconds)


@pytest.mark.parametrize("option", [["--here"], ["--here", "--json"]])
def test_the_plan_says_it_for_every_method(small, tmp_path, option):
    small()
    methods = ["--set", 'methods=["moon", "feddyn", "fedbr"]']
    found = CliRunner().invoke(app, ["plan", str(tmp_path / "small.yaml"), *methods, *option])
    assert found.exit_code == 0, found.output
    if "--json" in option:
        trained = json.loads(found.stdout)["training"]
        assert [each["label"] for each in trained] == ["moon", "feddyn", "fedbr"]
        assert all(each["seconds"] > 0 for each in trained)
    else:
        assert found.output.count("this machine trains") == 3
