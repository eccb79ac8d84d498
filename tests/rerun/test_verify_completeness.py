"""What was run is there: no method, input or model can be removed from a finished run without being noticed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from edgefl.cli import main
from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.experiment.directory import read_run_summary
from edgefl.record.names import CLIENT_MODELS, COSTS, FINAL_MODEL, SUMMARY
from edgefl.rerun.replay import replay
from edgefl.rerun.verify import verify
from edgefl.scenario.loading import check

from ..experiment.test_changed_inputs import trace
from ..small_runs import SMALL

METHODS = ["fedavg", "fedprox", {"method": "fedavg", "as": "twin"}]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    network = {**SMALL["network"], "links": trace(folder)["network.links"]}
    data = {**SMALL, "methods": METHODS, "keep_models": "clients", "network": network}
    return run(check(data), out=folder / "run", methods=["fedavg", "fedprox"])


@pytest.fixture
def copied(finished, tmp_path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def change(folder: Path, edit) -> None:
    summary = json.loads((folder / SUMMARY).read_text())
    edit(summary)
    (folder / SUMMARY).write_text(json.dumps(summary))


def test_a_run_of_some_of_the_scenarios_methods_is_complete(finished):
    assert verify(finished) == []
    assert read_run_summary(finished).chosen == ("fedavg", "fedprox")


@pytest.mark.parametrize("label", ["fedavg", "fedprox"])
@pytest.mark.parametrize("without", ["the result", "the result and the choice", "these and the costs"])
def test_a_method_cannot_be_dropped(copied, label, without):
    def drop(summary):
        del summary["methods"][label]
        if without != "the result":
            summary["chosen"].remove(label)

    change(copied, drop)
    if without == "these and the costs":
        costs = json.loads((copied / COSTS).read_text())
        del costs[label]
        (copied / COSTS).write_text(json.dumps(costs))
    assert any(f"'{label}'" in violation and "no results in summary.json" in violation for violation in verify(copied))


def test_a_digest_of_what_the_scenario_does_not_read_is_noticed(copied):
    change(copied, lambda summary: summary["inputs"].update(script="rm -r"))
    assert verify(copied) == ["inputs: summary.json has a digest of script, which the scenario does not read"]


def test_a_folder_that_was_removed_with_the_result_is_missed_by_the_costs(copied):
    change(copied, lambda summary: summary["methods"].pop("fedprox"))
    change(copied, lambda summary: summary["chosen"].clear())
    shutil.rmtree(copied / "fedprox")
    assert any("'fedprox' has step costs" in violation for violation in verify(copied))
    assert any(violation.startswith("chosen: ") for violation in verify(copied))


@pytest.mark.parametrize("methods", [{}, [], None, {"fedavg": []}])
def test_a_summary_without_results_is_refused(copied, methods):
    change(copied, lambda summary: summary.update(methods=methods))
    with pytest.raises(UserError, match="methods"):
        verify(copied)


@pytest.mark.parametrize("field", ["scenario", "data", "network.links.5g.down.file", None])
def test_a_digest_of_an_input_cannot_be_removed(copied, field):
    change(copied, lambda summary: summary["inputs"].clear() if field is None else summary["inputs"].pop(field))
    assert verify(copied)
    if field != "data":
        with pytest.raises(UserError, match=r"no digest"):
            replay(copied, [], copied.parent / "replayed")


@pytest.mark.parametrize("name", [FINAL_MODEL, CLIENT_MODELS])
def test_a_model_that_the_scenario_keeps_cannot_be_removed(copied, name):
    (copied / "fedprox/seed-0" / name).unlink()
    assert verify(copied) == [f"fedprox, seed 0: {name} is missing"]


def test_a_replay_is_complete(finished, tmp_path):
    assert verify(replay(finished, [], tmp_path / "same")) == []
    fewer = replay(finished, ["targets=[0.01]", "stop=target"], tmp_path / "fewer")
    (entry,) = read_run_summary(fewer).methods["fedavg"]
    assert entry.rounds < SMALL["training"]["rounds"]
    assert verify(fewer) == []


@pytest.mark.parametrize("command", ["verify", "replay", "diagnose"])
@pytest.mark.parametrize("label", ["results", "a b", "../x", "con"])
def test_a_label_that_no_run_can_have_is_refused(copied, capsys, command, label):
    change(copied, lambda summary: summary["methods"].update({label: summary["methods"]["fedavg"]}))
    assert main([command, str(copied), *(["-o", str(copied / "out")] if command == "replay" else [])]) == 2
    assert f"methods.{label}: expected" in capsys.readouterr().err
