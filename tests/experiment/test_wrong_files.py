"""A wrong file of each kind that a scenario names: one message, exit code 2, and nothing is written.

Each case is a folder with a scenario, and a file that is wrong in one way. Other tests try each kind of file in more
ways.
"""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from edgefl.cli import main
from edgefl.yaml_file import dump_yaml

from ..small_runs import SMALL

X = np.random.default_rng(0).standard_normal((64, 4))
Y = np.arange(64) % 4


def npz(path: Path, **arrays: Any) -> None:
    np.savez(path, **({"x": X, "y": Y} | arrays))


def nothing(path: Path) -> None:
    """No such file."""


def text(words: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(words)


def arrays(**changes: Any) -> Callable[[Path], object]:
    return lambda path: npz(path, **changes)


def table(**columns: Any) -> Callable[[Path], object]:
    return lambda path: pq.write_table(pa.table(columns), path)


def other(values: np.ndarray, position: Any, value: float) -> np.ndarray:
    changed = values.astype(float)
    changed[position] = value
    return changed


class Attack:
    """Creates a file when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.folder}/attacked",)


def unpickled(path: Path) -> None:
    path.write_bytes(pickle.dumps(Attack(path.parent)))


def and_then(*steps: Callable[[Path], object]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        for step in steps:
            step(path)

    return write


NET = {"model": {"python": "net.py:Net"}}
ARRAYS = {"data": {"name": "arrays", "train": "train.npz", "clients": 4}, "model": {"name": "mlp", "widths": [4]}}
TESTED = {**ARRAYS, "data": {**ARRAYS["data"], "test": "test.npz"}}
TABLE = {**ARRAYS, "data": {**ARRAYS["data"], "train": "train.parquet"}}
FOLDER = {"data": {"name": "image_folder", "train": "pictures", "clients": 3}, "model": {"name": "mlp", "widths": [4]}}
FUNCTION = {"data": {"python": "data.py:load", "clients": 4}, "model": {"name": "mlp", "widths": [4]}}
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
    "no data": (ARRAYS, "train.npz", nothing, "data.train: expected a file at"),
    "pickled data": (ARRAYS, "train.npz", unpickled, "not a readable .npz file"),
    "NaN": (ARRAYS, "train.npz", arrays(x=other(X, (5, 1), np.nan)), "found nan in sample 5"),
    "test data of another shape": (
        TESTED, "test.npz", and_then(lambda path: npz(path.with_name("train.npz")), arrays(x=X[:, :2])),
        "test inputs of the shape [4], as in the training data, found [2]",
    ),
    "a table without the column": (
        TABLE, "train.parquet", table(x=X[:, 0], label=Y), "no column 'y' in this file; expected one of: label, x",
    ),
    "an empty folder": (FOLDER, "pictures", Path.mkdir, "expected a subfolder of images for each class, found none"),
    "a function that raises": (
        FUNCTION, "data.py", text("def load():\n    return open('/none')"),
        "line 2: 'load' raised an error: FileNotFoundError",
    ),
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
