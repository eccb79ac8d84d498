"""A wrong file of each kind that a scenario names: one message, exit code 2, and nothing is written.

Each case is a folder with a scenario, and a file that is wrong in one way. Other tests try each kind of file in more
ways (those of data: tests/data).
"""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from edgefl.cli import main
from edgefl.yaml_file import dump_yaml

from ..small_runs import SMALL


def nothing(path: Path) -> None:
    """No such file."""


def text(words: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(words)


class Attack:
    """Creates a file when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.folder}/attacked",)


def unpickled(path: Path) -> None:
    path.write_bytes(pickle.dumps(Attack(path.parent)))


NET = {"model": {"python": "net.py:Net"}}
ARRAYS = {"data": {"name": "arrays", "train": "train.npz", "clients": 4}, "model": {"name": "mlp", "widths": [4]}}
LISTED = {"data": {**SMALL["data"], "partition": {"kind": "file", "file": "clients.csv"}}}
WEIGHTS = {"model": {"name": "cnn", "width": 2, "weights": "first.safetensors"}}
STATE = {"model": {"name": "cnn", "width": 2, "weights": "first.pt"}}
TRACE = copy.deepcopy({"network": SMALL["network"]})
TRACE["network"]["links"]["5g"]["down"] = {"kind": "trace", "format": "csv", "file": "trace.csv"}
PROFILE = {"fleet": [{"profile": "mine.yaml", "share": 1, "link": "5g"}]}

CASES = {
    "a model that is not Python": (NET, "net.py", text("class Net(:"), "line 1: not valid Python"),
    "no weights": (WEIGHTS, "first.safetensors", nothing, "model.weights: expected a file at"),
    "pickled weights": (
        STATE, "first.pt", lambda path: torch.save({"weight": Attack(path.parent)}, path),
        "found a pickle that needs code",
    ),
    "pickled data": (ARRAYS, "train.npz", unpickled, "not a readable .npz file"),
    "no list of clients": (LISTED, "clients.csv", nothing, "expected a file at 'clients.csv'"),
    "an empty profile": (PROFILE, "mine.yaml", text(""), "expected YAML, found nothing"),
    "no trace": (TRACE, "trace.csv", nothing, "expected a file or a folder at 'trace.csv'"),
}  # fmt: skip
"""A scenario, the file that is wrong, what writes it, and a part of the message."""


def entries(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*"))


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_file_ends_with_one_message_and_nothing_is_written(tmp_path, monkeypatch, capsys, recwarn, case):
    changes, name, write, message = CASES[case]
    monkeypatch.setenv("EDGEFL_DATA", str(tmp_path / "none"))
    (tmp_path / "my.yaml").write_text(dump_yaml(copy.deepcopy(SMALL) | changes))
    write(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    before = entries(tmp_path)
    code = main(["simulate", "my.yaml", "--out", "run"])
    output = capsys.readouterr()
    assert code == 2
    assert output.out == ""
    (line,) = output.err.splitlines()
    assert message in line
    assert [str(each.message) for each in recwarn] == []  # they are lines of standard error, too
    assert line.count("my.yaml") or name in line
    assert entries(tmp_path) == before
