"""A wrong file of each kind that a scenario names: one message, exit code 2, and nothing is written.

Each case is a folder with a scenario, and a file that is wrong in one way. Other tests try each kind of file in more
ways.
"""

from __future__ import annotations

import copy
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

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


def pickled_weights(path: Path) -> None:
    torch.save({"weight": Attack(path.parent)}, path)


def images(folder: Path) -> None:
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
        for number in range(4):
            Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(folder / name / f"{number}.png")


def and_then(*steps: Callable[[Path], object]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        for step in steps:
            step(path)

    return write


def model(code: str) -> Callable[[Path], object]:
    """A file with the class Net, whose body is given."""
    lines = "\n".join(f"    {line}" for line in code.strip().splitlines())
    return text(f"import torch\nfrom torch import nn\n\nclass Net(nn.Module):\n{lines}\n")


LINEAR = "self.first, self.head = nn.Linear(64, 8), nn.Linear(8, 4)"


def forward(*lines: str, made: str | None = LINEAR) -> Callable[[Path], object]:
    """A file with the class Net, which makes these layers and calls them so."""
    init = "" if made is None else f"def __init__(self):\n    super().__init__()\n    {made}\n"
    return model(init + "def forward(self, x):\n" + "\n".join(f"    {line}" for line in lines))


NET = {"model": {"python": "net.py:Net"}}
ARRAYS = {"data": {"name": "arrays", "train": "train.npz", "clients": 4}, "model": {"name": "mlp", "widths": [4]}}
TESTED = {**ARRAYS, "data": {**ARRAYS["data"], "test": "test.npz"}}
TABLE = {**ARRAYS, "data": {**ARRAYS["data"], "train": "train.parquet"}}
FOLDER = {"data": {"name": "image_folder", "train": "pictures", "clients": 3}, "model": {"name": "mlp", "widths": [4]}}
FUNCTION = {"data": {"python": "data.py:load", "clients": 4}, "model": {"name": "mlp", "widths": [4]}}
LISTED = {"data": {**SMALL["data"], "partition": {"kind": "file", "file": "clients.csv"}}}
LISTED_JSON = {"data": {**SMALL["data"], "partition": {"kind": "file", "file": "clients.json"}}}
WEIGHTS = {"model": {"name": "cnn", "width": 2, "weights": "first.safetensors"}}
STATE = {"model": {"name": "cnn", "width": 2, "weights": "first.pt"}}
TRACE = copy.deepcopy({"network": SMALL["network"]})
TRACE["network"]["links"]["5g"]["down"] = {"kind": "trace", "format": "csv", "file": "trace.csv"}
PROFILE = {"fleet": [{"profile": "mine.yaml", "share": 1, "link": "5g"}]}

MODELS = {
    "no file": (nothing, "net.py: no such file"),
    "not Python": (text("class Net(:"), "line 1: not valid Python"),
    "raises at import": (text("x = 1\nraise RuntimeError('no')"),
     "line 2: this file raised an error when it was imported: RuntimeError: no"),
    "too few outputs": (forward("return self.head(self.first(x.flatten(1)))[:, :2]"),
     "expected outputs of shape (2, 4) for a batch of shape (2, 1, 8, 8), found (2, 2)"),
    "a branch that depends on data": (
     forward("x = self.first(x.flatten(1))", "if x.sum() > 0:", "    x = -x", "return self.head(x)"),
     "(.item(), float(tensor) or a condition on a tensor): what it executes then depends on the data"),
}  # fmt: skip

SAFETENSORS = {
    "no weights": (nothing, "model.weights: expected a file at"),
    "a cut file of weights": (lambda path: path.write_bytes(struct.pack("<Q", 2**40)),
     "not a readable .safetensors file"),
}  # fmt: skip

STATES = {
    "pickled weights": (pickled_weights, "found a pickle that needs code, which edgefl does not run"),
    "weights of another model": (lambda path: torch.save({"a.weight": torch.zeros(3)}, path),
     "expected the tensor 'conv1.0.weight' [2, 1, 3, 3], found none"),
}  # fmt: skip

ARCHIVES = {
    "no data": (nothing, "data.train: expected a file at"),
    "a pickle": (unpickled, "not a readable .npz file"),
    "objects": (arrays(x=X.astype(object)), "found Python objects (a pickle), which edgefl does not open"),
    "no labels": (lambda path: np.savez(path, x=X), "no array 'y' in this file"),
    "NaN": (arrays(x=other(X, (5, 1), np.nan)), "found NaN or an infinity in sample 5"),
}  # fmt: skip

TESTS = {
    "test data of another shape": (and_then(lambda path: npz(path.with_name("train.npz")), arrays(x=X[:, :2])),
     "expected inputs of the shape [4], as in the training data, found [2]"),
}  # fmt: skip

TABLES = {
    "a table without the column": (table(x=X[:, 0], label=Y), "no column 'y' in this file; expected one of: label, x"),
}  # fmt: skip

FOLDERS = {
    "an empty folder": (Path.mkdir, "expected a subfolder of images for each class, found none"),
    "no image": (and_then(images, lambda path: (path / "a" / "9.png").write_text("no")),
     "9.png: this is no image that can be decoded"),
}  # fmt: skip

FUNCTIONS = {
    "a function that raises": (text("def load():\n    return open('/none')"),
     "line 2: 'load' raised an error: FileNotFoundError"),
}  # fmt: skip

LISTS = {
    "no clients": (nothing, "expected a file at 'clients.csv'"),
    "fewer clients than the scenario has": (text("client\n1\n2\n"), "expects at most 2 clients"),
}  # fmt: skip

JSON_LISTS = {
    "clients that are no JSON": (text("{"), "not JSON (line 1"),
}  # fmt: skip

PROFILES = {
    "an empty profile": (text(""), "expected YAML, found nothing"),
}  # fmt: skip

TRACES = {
    "no trace": (nothing, "expected a file or a folder at 'trace.csv'"),
    "a trace of words": (text("seconds,bits_per_second\n0,fast\n"), "line 2: bits_per_second: expected a number"),
}  # fmt: skip

GROUPS = [
    (NET, "net.py", MODELS),
    (WEIGHTS, "first.safetensors", SAFETENSORS),
    (STATE, "first.pt", STATES),
    (ARRAYS, "train.npz", ARCHIVES),
    (TESTED, "test.npz", TESTS),
    (TABLE, "train.parquet", TABLES),
    (FOLDER, "pictures", FOLDERS),
    (FUNCTION, "data.py", FUNCTIONS),
    (LISTED, "clients.csv", LISTS),
    (LISTED_JSON, "clients.json", JSON_LISTS),
    (PROFILE, "mine.yaml", PROFILES),
    (TRACE, "trace.csv", TRACES),
]
"""A scenario, the file that is wrong, and how: what writes it, and a part of the message."""
CASES = {case: (scenario, file, *how) for scenario, file, group in GROUPS for case, how in group.items()}


def entries(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*"))


FIRST = {next(iter(group)) for *_, group in GROUPS}
"""The first case of each kind of file."""


@pytest.mark.parametrize(
    "case", [case if case in FIRST else pytest.param(case, marks=pytest.mark.full) for case in CASES]
)
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
