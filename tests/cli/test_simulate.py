"""``edgefl simulate`` from the outside: what is printed, and where it is written."""

import json

import pytest
import typer

import edgefl
from edgefl import shipped
from edgefl.cli import main
from edgefl.cli.entry import app
from edgefl.record.events import Listener
from edgefl.scenario import load_scenario
from edgefl.yaml_file import dump_yaml

from .. import small_runs

SMALL = {
    **small_runs.SMALL,
    "seeds": [3, 1],
    "training": {**small_runs.SMALL["training"], "rounds": 2},
    "methods": ["fedavg", {"method": "fedprox", "as": "prox"}],
}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(dump_yaml(SMALL))


def test_the_machine_gets_the_summary_and_nothing_else_on_standard_output(capsys, tmp_path):
    assert main(["simulate", "small.yaml", "--no-train", "--json"]) == 0
    output = capsys.readouterr()
    assert output.out == (tmp_path / "runs" / "small" / "summary.json").read_text()
    summary = json.loads(output.out)
    assert {label: [result["seed"] for result in results] for label, results in summary["methods"].items()} == {
        "fedavg": [3, 1],
        "prox": [3, 1],
    }
    assert "prox, seed 1" in output.err
    assert not list((tmp_path / "runs").rglob("*.png"))


def test_a_person_gets_a_table_the_verdict_and_the_files(capsys, tmp_path):
    assert main(["simulate", "small.yaml", "--out", "here", "--seed", "5", "--device", "cpu"]) == 0
    output = capsys.readouterr().out
    assert "fedavg" in output
    assert "prox" in output
    assert "Details  edgefl report here --details" in output
    assert list((tmp_path / "here").glob("*.png"))
    assert main(["verify", "here"]) == 0
    assert main(["simulate", "here", "--set", "training.rounds=9"]) == 2
    assert "to go on with it: edgefl simulate --resume here --rounds N" in capsys.readouterr().err


def test_a_run_whose_input_turns_out_wrong_leaves_nothing(capsys, tmp_path, monkeypatch):
    def timed(self):
        raise edgefl.UserError("the data set is no good", field="data")

    monkeypatch.setattr("edgefl.experiment.one_run.OneRun.timed", timed)
    assert main(["simulate", "small.yaml", "--out", "here", "--no-train"]) == 2
    assert capsys.readouterr().err.endswith("error: small.yaml: data: the data set is no good\n")
    assert not (tmp_path / "here").exists()


def test_python_does_the_same_as_the_command(tmp_path):
    seen = []

    class Seen(Listener):
        def run_began(self, label, seed):
            seen.append((label, seed))

        def round_ended(self, row):
            seen.append(row.round)

        def run_ended(self, result):
            seen.append(result.stop.reason)

    result = edgefl.simulate(
        "small.yaml",
        out=tmp_path / "python",
        overrides={"seeds": [0]},
        methods=["prox"],
        train=False,
        listeners=[Seen()],
    )
    assert isinstance(result, edgefl.RunResult)
    assert result.labels == ["prox"]
    assert seen == [("prox", 0), 1, 2, "rounds"]
    scenario = edgefl.load_scenario("small.yaml")
    assert isinstance(scenario, edgefl.Scenario)
    again = edgefl.simulate(scenario, out=tmp_path / "again", overrides=["seeds=[0]"], methods=["prox"], train=False)
    assert again.summary == result.summary


def test_a_resumed_run_takes_no_other_option_instead_of_ignoring_it(capsys):
    command = typer.main.get_command(app).commands["simulate"]
    options = [
        each
        for each in command.params
        if each.name not in ("scenario", "resume", "rounds", "changes", "as_json", "trust", "details", "html", "help")
    ]
    assert len(options) >= 6
    for each in options:
        name = next(word for word in each.opts if word.startswith("--"))
        value = [] if getattr(each, "is_flag", False) else ["auto" if each.name in ("device", "engine") else "1"]
        assert main(["simulate", "--resume", "somewhere", name, *value]) == 2
        assert f"error: {name}: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "what", ["methods", *(pytest.param(each, marks=pytest.mark.full) for each in ("models", "datasets"))]
)
def test_the_lists_say_what_can_be_named(capsys, what):
    assert main([what, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)[what]
    names = [row["name"] for row in listed]
    assert names == sorted(names)
    assert all(row["summary"] for row in listed)
    assert all(option["description"] for row in listed for option in row["options"].values())
    assert not any({"method", "name"} & set(row["options"]) for row in listed)
    assert main([what]) == 0
    table = capsys.readouterr().out
    assert all(name in table for name in names)
    assert main([what, names[0]]) == 0
    details = capsys.readouterr().out
    assert all(option in details for option in listed[0]["options"])


def test_a_scenario_is_checked_resolved_and_described(capsys, tmp_path):
    assert main(["scenario", "validate", "small.yaml"]) == 0
    assert "valid" in capsys.readouterr().out
    assert main(["scenario", "validate", "small.yaml", "--resolved", "--set", "name=other"]) == 0
    (tmp_path / "resolved.yaml").write_text(capsys.readouterr().out)
    assert load_scenario("resolved.yaml") == load_scenario("small.yaml", {"name": "other"})
    assert main(["scenario", "schema"]) == 0
    assert json.loads(capsys.readouterr().out)["type"] == "object"


def test_the_shipped_scenarios_are_listed_with_what_each_is_for(capsys):
    assert main(["scenario", "list", "--json"]) == 0
    listed = {row["name"]: row["purpose"] for row in json.loads(capsys.readouterr().out)}
    assert list(listed) == list(shipped.files("scenarios"))
    assert listed["lte_rural"] == "Phones on rural LTE: slow, varying links with outages, and slower uplinks"
    assert all(purpose[0].isupper() and len(purpose) > 20 for purpose in listed.values())
    assert main(["scenario", "list"]) == 0
    printed = capsys.readouterr().out
    assert "5g_100clients" in printed
    assert "fig4_computation" not in printed
    assert main(["scenario", "list", "papers/fedmlb"]) == 0
    assert "fig4_computation" in capsys.readouterr().out
    assert main(["scenario", "list", "papers/fedmbl"]) == 2
    assert "papers/fedmlb" in capsys.readouterr().err


@pytest.mark.full
@pytest.mark.parametrize("command", ["simulate", "emulate"])
@pytest.mark.parametrize("folder", ["here", "here-predicted"])
def test_an_interrupted_folder_is_refused_before_data_and_models_are_read(capsys, monkeypatch, command, folder):
    with pytest.raises(KeyboardInterrupt):
        edgefl.simulate("small.yaml", out=folder, train=False, listeners=[small_runs.Stop(1)])
    monkeypatch.setattr("edgefl.scenario.rehearse", lambda *_, **__: pytest.fail("data and models were read"))
    out = "here" if command == "emulate" else folder
    assert main([command, "small.yaml", "--out", out]) == 2
    assert f"error: {folder}: contains an interrupted run; to continue: edgefl simulate" in capsys.readouterr().err


@pytest.mark.full
def test_a_run_that_stalled_ends_with_exit_code_1_and_is_complete(capsys):
    change = "network.topology.server={up: 0, down: 0}"
    assert main(["simulate", "small.yaml", "--no-train", "--set", change, "--out", "here"]) == 1
    assert "\n4 of 4 runs stalled: fedavg, seed 3; fedavg, seed 1; " in capsys.readouterr().err
    assert main(["verify", "here"]) == 0


@pytest.mark.full
@pytest.mark.parametrize(("options", "others"), [([], []), (["--json"], []), ([], ["fedavg"])])
def test_a_run_that_diverged_ends_with_exit_code_1_and_is_complete(capsys, tmp_path, options, others):
    wild = {"method": "fedavg", "as": "wild", "local": {"lr": 1e30}}
    scenario = {**SMALL, "methods": [wild, *others], "seeds": [0, 1]}
    (tmp_path / "wild.yaml").write_text(dump_yaml(scenario))
    assert main(["simulate", "wild.yaml", "--out", "here", *options]) == 1
    output = capsys.readouterr()
    assert output.err.rstrip().endswith(f"2 of {2 + 2 * len(others)} runs diverged: wild, seed 0; wild, seed 1")
    assert "divergence" in output.out or json.loads(output.out)["methods"]["wild"][0]["stop"]["reason"] == "diverged"
    assert main(["verify", "here"]) == 0
    assert main(["simulate", "here", "--add-seeds", "1"]) == 1
