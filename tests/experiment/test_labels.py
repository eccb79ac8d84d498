"""Labels name folders next to edgefl's own files: on no file system may one be the other."""

from __future__ import annotations

import copy
import os
from pathlib import Path

import pytest

import edgefl
from edgefl.cli import main
from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.record.names import CHECKPOINTS, OWN, SEED_FILES
from edgefl.report import RunResult, write_pictures
from edgefl.rerun.replay import Replay
from edgefl.rerun.sensitivity import write_sensitivity
from edgefl.scenario.loading import check
from edgefl.yaml_file import dump_yaml

from ..small_runs import SMALL, Stop

WRONG = [
    "con",
    "LPT9.log",
    "",
    "..",
    "a/b",
    "a\\b",
    ".hidden",
    "-front",
    "dot.",
    "a b",
    "line\n",
    "café",
    "a" * 101,
    "a:b",
]


def labelled(label: object) -> dict:
    return {**copy.deepcopy(SMALL), "methods": [{"method": "fedavg", "as": label}]}


@pytest.mark.parametrize("label", ["summary.json", "Inputs", "SUMMARY.json", *WRONG, 3])
def test_a_label_that_cannot_name_a_folder_is_refused_with_its_field(label):
    with pytest.raises(UserError) as refusal:
        check(labelled(label))
    assert refusal.value.field == "methods.0.as"
    assert "expected" in refusal.value.message


def test_a_run_with_such_a_label_is_refused_before_anything_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("my.yaml").write_text(dump_yaml(labelled("summary.json")), encoding="utf-8")
    assert main(["simulate", "my.yaml", "--no-train", "--out", "run"]) == 2
    assert "methods.0.as: expected another label: edgefl uses this name" in capsys.readouterr().err
    assert os.listdir() == ["my.yaml"]


def entries(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


@pytest.mark.full
def test_whatever_edgefl_creates_is_on_the_list(tmp_path):
    """Under way, finished, with every file that a command adds later: nothing has a name that a label could take."""
    data = {**copy.deepcopy(SMALL), "keep_models": "clients", "methods": ["fedavg", {"method": "fedavg", "as": "twin"}]}
    data["data"].update(test="partitioned", test_images=80)
    data["training"]["rounds"] = 12
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run(check(data), out=folder, listeners=[Stop(23)])
    found = entries(folder)
    edgefl.experiment.resume(folder)
    write_pictures(RunResult(folder))
    write_sensitivity(folder)
    found |= entries(folder) | entries(Replay(folder).on([], tmp_path / "replayed"))
    assert {"unfinished.json", "twin/seed-0/journal.arrow", "sensitivity.parquet", "accuracy.png"} <= found
    assert {path.split("/")[0] for path in found} - {"fedavg", "twin"} <= OWN
    inside = {path.split("/")[2] for path in found if path.startswith(("fedavg/seed-0/", "twin/seed-0/"))}
    assert inside <= {*SEED_FILES, CHECKPOINTS}
