"""docs/flower.md: its example runs, and it names every strategy."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgefl import RunResult
from edgefl.api import simulate
from edgefl.cli.entry import app
from edgefl.errors import UserError
from edgefl.flower.scenario import load_any_scenario

from .runs import needs_flwr

DOCS = Path(__file__).parents[2] / "docs"


def written(folder):
    """The files of the example."""
    found = re.findall(r"^```(toml|python|yaml)\n(.*?)^```", (DOCS / "flower.md").read_text(), re.M | re.S)
    blocks = dict(reversed(found))  # the first one of each language
    (folder / "digits-app").mkdir()
    (folder / "digits-app" / "pyproject.toml").write_text(blocks["toml"])
    (folder / "digits-app" / "digits_app.py").write_text(blocks["python"])
    (folder / "flower.yaml").write_text(blocks["yaml"])
    return folder / "flower.yaml"


class TestWithFlower:
    pytestmark = needs_flwr

    def test_the_example_runs(self, tmp_path):
        result = simulate(written(tmp_path), out=tmp_path / "run", overrides={"flower.run_config.num-server-rounds": 6})
        assert isinstance(result, RunResult)
        twenty, five = (result.results[label][0] for label in ("twenty-steps", "five-steps"))
        assert twenty.accuracy.final > five.accuracy.final > 0.3
        assert twenty.seconds > five.seconds


def test_the_example_is_a_scenario_without_flower(tmp_path):
    scenario = load_any_scenario(written(tmp_path), ["flower.run_config.local-steps=7"])
    assert scenario is not None
    assert scenario.flower.app == str(tmp_path / "digits-app")
    twenty, five = (scenario.app_of(method).run_config["local-steps"] for method in scenario.methods)
    assert (twenty, five) == (7, 5)


class TestCommandLine:
    pytestmark = needs_flwr

    def run(self, *arguments):
        return CliRunner().invoke(app, list(arguments), catch_exceptions=False)

    def test_simulate_and_verify_take_the_scenario(self, tmp_path):
        scenario, out = str(written(tmp_path)), str(tmp_path / "run")
        few = ("--set", "flower.run_config.num-server-rounds=1", "--method", "five-steps", "--seed", "3")
        done = self.run("simulate", scenario, "--out", out, *few)
        assert done.exit_code == 0
        assert "five-steps" in done.output
        assert "twenty-steps" not in done.output
        assert "not simulated again, because its app is not executed" in self.run("verify", out).output
        assert "6 clients, 2 methods x 1 seed" in self.run("scenario", "validate", scenario).output

    def test_options_about_training_are_refused(self, tmp_path):
        with pytest.raises(UserError, match="a Flower app trains in its own code; remove this option"):
            self.run("simulate", str(written(tmp_path)), "--no-train")


def test_arguments_about_training_are_refused(tmp_path):
    with pytest.raises(UserError, match="a Flower app trains in its own code; remove this argument"):
        simulate(written(tmp_path), out=tmp_path / "run", engine="sequential")
