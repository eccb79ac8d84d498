"""``edgefl new``: what it writes can be simulated, and answers in a terminal give the same as options."""

import runpy
import sys

import pytest

from edgefl.cli import main
from edgefl.scenario import load_scenario, rehearse

SENSORS = "time;site;t;shift;state\n" + "".join(
    f"2024-01-{n};{'abc'[n % 3]};{n},5;{n % 2}x;s{n % 2}\n" for n in range(90)
)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sensors.csv").write_text(SENSORS)
    return tmp_path


def test_the_tutorials_files_are_a_whole_scenario(here, monkeypatch, capsys):
    assert main(["new", "mine", "--network", "trace", "--devices", "raspberry-pi-5,jetson-nano"]) == 0
    assert "cd mine && python make_data.py" in capsys.readouterr().out
    monkeypatch.chdir(here / "mine")
    runpy.run_path("make_data.py")
    monkeypatch.chdir(here)
    scenario = load_scenario("mine/scenario.yaml")
    assert [each.profile.name for each in scenario.fleet] == ["raspberry-pi-5", "jetson-nano"]
    assert rehearse(scenario)[0].period == 56  # street.csv ends at 40 s, and its last rate holds for 16 s
    assert main(["new", "mine"]) == 2


def test_a_csv_file_becomes_a_scenario_by_options_and_by_answers(here, monkeypatch):
    assert main(["new", "a b/c", "--csv", "sensors.csv", "--client", "site"]) == 0
    scenario = load_scenario("a b/c/scenario.yaml")
    data = scenario.data
    assert (data.target, data.client, data.clients, data.ignore) == (("state",), "site", 3, ("time",))
    assert data.one_hot == ("shift",)
    rehearse(scenario)
    answers = iter(["sensors.csv", "the last", "site", "raspberry-pi-4,phone-mid-range", "constant"])
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.prompt", lambda *_, **__: next(answers))
    assert main(["new", "a b/d"]) == 0
    written = [(here / "a b" / name / "scenario.yaml").read_text() for name in "cd"]
    assert written[0].replace("name: c\n", "name: d\n") == written[1]


def test_numbers_are_estimated_without_clients(here):
    assert main(["new", "numbers", "--csv", "sensors.csv", "--target", "t"]) == 0
    scenario = load_scenario("numbers/scenario.yaml")
    assert (scenario.task.kind, scenario.data.clients, scenario.targets) == ("regression", 4, ())
    rehearse(scenario)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--csv", "sensors.csv", "--target", "stat"], "did you mean 'state'?"),
        (["--csv", "none.csv"], "none.csv"),
        (["--target", "state"], "--target: expected it with --csv"),
        (["--devices", "raspberry-pi-6"], "did you mean"),
    ],
)
def test_wrong_answers_write_nothing(here, words, message, capsys):
    assert main(["new", "mine", *words]) == 2
    assert message in capsys.readouterr().err
    assert not (here / "mine").exists()
