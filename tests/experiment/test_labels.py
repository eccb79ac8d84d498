"""Labels name folders next to edgefl's own files: on no file system may one be the other."""

from __future__ import annotations

import ast
import copy
import os
from pathlib import Path

import pytest

import edgefl
from edgefl.cli import main
from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.record import label_fault
from edgefl.record.names import CHECKPOINTS, INPUTS, OWN, RESULTS, SEED, SEED_FILES
from edgefl.report import RunResult, write_pictures
from edgefl.rerun.replay import Replay
from edgefl.rerun.sensitivity import write_sensitivity
from edgefl.scenario import load_scenario
from edgefl.scenario.loading import check
from edgefl.scenario.writing import dump_yaml

from ..small_runs import SMALL, Stop

WINDOWS = ["con", "prn.txt", "AUX", "nul", "com1", "LPT9.log"]
SHAPES = [
    "", ".", "..", "../up", "a/b", "a\\b", "/tmp/x", ".hidden", "-front", "dot.", "space ", " space", "a b",
    "tab\t", "line\n", "nul\0", "\x7f", "café", "cafe\u0301", "ﬁle", "٣", "a" * 101, "a" * 256, "a:b", "a*", "a?", "~a",
]  # fmt: skip


def labelled(label: object) -> dict:
    return {**copy.deepcopy(SMALL), "methods": [{"method": "fedavg", "as": label}]}


def spellings(name: str) -> list[str]:
    return sorted({name, name.upper(), name.title(), name.swapcase()})


@pytest.mark.parametrize("label", [*(each for name in sorted(OWN) for each in spellings(name)), *WINDOWS, *SHAPES, 3])
def test_a_label_that_cannot_name_a_folder_is_refused_with_its_field(label):
    with pytest.raises(UserError) as refusal:
        check(labelled(label))
    assert refusal.value.field == "methods.0.as"
    assert "expected" in refusal.value.message


@pytest.mark.parametrize("command", [["scenario", "validate"], ["simulate", "--no-train", "--out", "run"]])
@pytest.mark.parametrize("label", sorted(OWN))
def test_every_command_refuses_it_before_anything_is_written(tmp_path, monkeypatch, capsys, command, label):
    monkeypatch.chdir(tmp_path)
    Path("my.yaml").write_text(dump_yaml(labelled(label)), encoding="utf-8")
    assert main([*command, "my.yaml"]) == 2
    assert "methods.0.as: expected another label: edgefl uses this name" in capsys.readouterr().err
    assert os.listdir() == ["my.yaml"]


@pytest.mark.parametrize("label", ["fedavg", "FedMLB+FedAdam", "result", "summary", "a.b", "_a"[1:], "a" * 100, "0"])
def test_an_ordinary_label_is_taken(label):
    assert label_fault(label) is None
    assert check(labelled(label)).methods[0].label == label


def entries(folder: Path) -> set[str]:
    """Every name in the folder, as POSIX paths, without what lies in checkpoints and shared results."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def test_whatever_edgefl_creates_is_on_the_list(tmp_path):
    """Under way, finished, with every file that a command adds later: nothing has a name that a label could take."""
    data = {**copy.deepcopy(SMALL), "keep_models": "clients", "methods": ["fedavg", {"method": "fedavg", "as": "twin"}]}
    data["data"].update(test="partitioned", test_images=80)
    data["training"]["rounds"] = 12
    scenario, folder = check(data), tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run(scenario, out=folder, listeners=[Stop(23)])
    found = entries(folder)
    edgefl.experiment.resume(folder)
    write_pictures(RunResult(folder))
    write_sensitivity(folder)
    found |= entries(folder) | entries(Replay(folder).on([], tmp_path / "replayed"))
    assert {"unfinished.json", "results", "twin/seed-0/journal.sqlite", "sensitivity.parquet", "accuracy.png"} <= found
    top = {path.split("/")[0] for path in found}
    assert top - {"fedavg", "twin"} <= OWN
    inside = {path.split("/")[2] for path in found if path.startswith(("fedavg/seed-0/", "twin/seed-0/"))}
    assert inside <= {*SEED_FILES, CHECKPOINTS}
    assert {path for path in found if path.count("/") == 1 and not path.startswith("results")} == {
        "fedavg/seed-0", "twin/seed-0"
    }  # fmt: skip


def test_shipped_scenarios_keep_their_labels():
    for name in ("5g_100clients",):
        assert all(label_fault(method.label) is None for method in load_scenario(name).methods)


def test_only_one_module_spells_the_names():
    """So that every path in a run directory comes from ``edgefl.record``, which follows no links."""
    package = Path(edgefl.__file__).parent
    spelt = {*OWN, *SEED_FILES, CHECKPOINTS, SEED} - {RESULTS, INPUTS}
    found = {
        (path.relative_to(package).as_posix(), node.value)
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in spelt
    }
    assert {place for place, _ in found} == {"record/names.py"}, sorted(found)
