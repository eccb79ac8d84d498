"""A wrong file of each kind that a scenario names: one message, exit code 2, and nothing is written.

Each case is a folder with a scenario, and a file that is wrong in one way. Other tests try each kind of file in more
ways.
"""

from __future__ import annotations

import copy
import os
import pickle
import signal
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from edgefl import shipped
from edgefl.cli import main
from edgefl.scenario import dump_yaml

from ..small_runs import SMALL

X = np.random.default_rng(0).standard_normal((64, 4))
Y = np.arange(64) % 4
SECONDS = 120


def never_ends(path: Path) -> None:
    path.symlink_to("/dev/zero")


def never_begins(path: Path) -> None:
    os.mkfifo(path)


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


def bomb(path: Path) -> None:
    """A small archive whose array claims a petabyte."""
    np.savez(path, y=Y)
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (64, 2000000000000), }"
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00v\x00" + header.ljust(117) + b"\n")


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
    "a folder": (Path.mkdir, "net.py: expected a Python file, found a folder"),
    "an empty file": (text(""), "no object 'Net'; it has no function and no class"),
    "not Python": (text("class Net(:"), "line 1: not valid Python"),
    "bytes": (lambda path: path.write_bytes(bytes(range(256))), "line 1: not valid Python"),
    "an endless file": (never_ends, "expected a Python file, found a device"),
    "a pipe": (never_begins, "expected a Python file, found a named pipe"),
    "raises at import": (text("x = 1\nraise RuntimeError('no')"),
     "line 2: this file raised an error when it was imported: RuntimeError: no"),
    "exits at import": (text("import sys\nsys.exit()"),
     "line 2: this file raised an error when it was imported: SystemExit"),
    "imports what is missing": (text("import no_such_package"),
     "ModuleNotFoundError: No module named 'no_such_package'"),
    "not callable": (text("Net = [1, 2]"), "expected 'Net' to be a function or a class, found a list"),
    "no module": (text("def Net():\n    return 'net'"), "expected 'Net' to make an nn.Module, found 'net'"),
    "takes other arguments": (text("def Net(width):\n    pass"),
     "'Net' raised an error: TypeError: Net() missing 1 required"),
    "raises when it is made": (text("def Net():\n    return {}['a']"), "'Net' raised an error: KeyError: 'a'"),
    "no parameters": (forward("return x.flatten(1)[:, :4]", made=None), "expected a model with parameters"),
    "no forward": (model(f"def __init__(self):\n    super().__init__()\n    {LINEAR}"),
     'missing the required "forward" function'),
    "another shape of inputs": (forward("return self.head(x.flatten(1))"),
     "mat1 and mat2 shapes"),
    "too few outputs": (forward("return self.head(self.first(x.flatten(1)))[:, :2]"),
     "expected outputs of shape (2, 4) for a batch of shape (2, 1, 8, 8), found (2, 2)"),
    "no tensor": (forward("return [self.head(self.first(x.flatten(1)))]"), "expected outputs of shape (2, 4)"),
    "one output for the batch": (forward("return self.head(self.first(x.flatten(1))).mean(0)"), "found (4,)"),
    "sizes that depend on data": (forward("x = self.first(x.flatten(1))", "return self.head(x[x > 0].view(-1, 8))"),
     "expected outputs of shape (2, 4)"),
    "a branch that depends on data": (
     forward("x = self.first(x.flatten(1))", "if x.sum() > 0:", "    x = -x", "return self.head(x)"),
     "(.item(), float(tensor) or a condition on a tensor): what it executes then depends on the data"),
    "numbers from NumPy": (
     forward("x = self.first(x.flatten(1))", "return self.head(torch.from_numpy(x.detach().numpy() * 2))"),
     "the model calls a function that reads the numbers in a tensor (NumPy"),
    "an endless recursion": (forward("return self.forward(x)"), "maximum recursion depth exceeded"),
    "lazy layers": (forward("return self.first(x)", made="self.first = nn.LazyLinear(4)"),
     "the layer 'first' (LazyLinear) gets its size from its first input"),
    "more than all memory": (forward("return self.first(x)", made="self.first = nn.Linear(10**8, 10**8)"),
     "'Net' raised an error: RuntimeError"),
    "complex parameters": (
     forward("return self.first(x.flatten(1) + 0j).real", made="self.first = nn.Linear(64, 4, dtype=torch.complex64)"),
     "cannot be called with a batch"),
    "only integers": (
     forward("return x.flatten(1)[:, :4] * self.k", made="self.register_buffer('k', torch.ones(4, dtype=torch.int64))"),
     "expected a model with parameters"),
    "draws of its own": (
     forward("return self.head(self.first(x.flatten(1)) + torch.multinomial(torch.ones(8), 8).float())"),
     "draws random numbers in a way that a job's key cannot determine"),
}  # fmt: skip

SAFETENSORS = {
    "no weights": (nothing, "model.weights: expected a file at"),
    "a cut file of weights": (lambda path: path.write_bytes(struct.pack("<Q", 2**40)),
     "not a readable .safetensors file"),
    "endless weights": (never_ends, "found a device"),
    "a pipe of weights": (never_begins, "found a named pipe"),
}  # fmt: skip

STATES = {
    "pickled weights": (pickled_weights, "found a pickle that needs code, which edgefl does not run"),
    "a pickle as weights": (unpickled, "found a pickle that needs code, which edgefl does not run"),
    "weights of another model": (lambda path: torch.save({"a.weight": torch.zeros(3)}, path),
     "expected the tensor 'conv1.0.weight' [2, 1, 3, 3], found none"),
}  # fmt: skip

ARCHIVES = {
    "no data": (nothing, "data.train: expected a file at"),
    "no archive": (text("x, y"), "not a readable .npz file"),
    "an endless archive": (never_ends, "data.train: expected a file at 'train.npz', found a device"),
    "a pipe of arrays": (never_begins, "found a named pipe"),
    "a pickle": (unpickled, "not a readable .npz file"),
    "a bomb": (bomb, "'x' has 0 bytes of values, and its header says 1024000000000000"),
    "objects": (arrays(x=X.astype(object)), "found Python objects (a pickle), which edgefl does not open"),
    "no labels": (lambda path: np.savez(path, x=X), "no array 'y' in this file"),
    "a wrong shape": (arrays(y=Y.reshape(32, 2)), "one label for each in 'y', found [32, 2]"),
    "fewer labels": (arrays(y=Y[:9]), "expected as many values in 'y' as inputs in 'x', 64, found 9"),
    "NaN": (arrays(x=other(X, (5, 1), np.nan)), "found NaN or an infinity in sample 5"),
    "a fraction as label": (arrays(y=other(Y, 3, 0.5)), "found 0.5 in sample 3"),
    "a label below 0": (arrays(y=Y - 1), "found -1 in sample 0"),
}  # fmt: skip

TESTS = {
    "an unknown label in the test data": (and_then(lambda path: npz(path.with_name("train.npz")), arrays(y=Y + 1)),
     "expected labels that are in the training data, found 4 in 'y'"),
    "test data of another shape": (and_then(lambda path: npz(path.with_name("train.npz")), arrays(x=X[:, :2])),
     "expected inputs of the shape [4], as in the training data, found [2]"),
}  # fmt: skip

TABLES = {
    "a table without the column": (table(x=X[:, 0], label=Y), "no column 'y' in this file; expected one of: label, x"),
    "a cut table": (and_then(table(x=X[:, 0], y=Y), lambda path: path.write_bytes(path.read_bytes()[:-20])),
     "not a readable Parquet file"),
    "a table with empty cells": (table(x=[None, *X[1:, 0]], y=Y),
     "expected a value in every row of 'x', found 1 empty"),
    "a table of texts": (table(x=["a"] * 64, y=Y), "expected numbers in 'x', found the type text"),
    "an endless table": (never_ends, "found a device"),
    "a pipe of a table": (never_begins, "found a named pipe"),
}  # fmt: skip

FOLDERS = {
    "an empty folder": (Path.mkdir, "expected a subfolder of images for each class, found none"),
    "no folder": (text("a file"), "data.train: expected a folder at 'pictures', found a file"),
    "empty classes": (lambda path: (path / "a").mkdir(parents=True), "expected images of this class, found none"),
    "no image": (and_then(images, lambda path: (path / "a" / "9.png").write_text("no")),
     "9.png: this is no image that can be decoded"),
    "an endless image": (and_then(images, lambda path: never_ends(path / "a" / "9.png")),
     "found a link that leaves the data's folder"),
    "a pipe among images": (and_then(images, lambda path: never_begins(path / "a" / "9.png")),
     "expected an image file, found a folder or a device"),
}  # fmt: skip

FUNCTIONS = {
    "data that raise at import": (text("1 / 0"),
     "line 1: this file raised an error when it was imported: ZeroDivisionError"),
    "data that are not callable": (text("load = {'train': 1}"),
     "expected 'load' to be a function or a class, found a mapping"),
    "a function that raises": (text("def load():\n    return open('/none')"),
     "line 2: 'load' raised an error: FileNotFoundError"),
    "a function that returns nothing": (text("def load(): ..."),
     "expected 'load' to return a mapping with train and possibly test, found None"),
    "a function that returns NaN": (
     text("import numpy as np\ndef load():\n    return {'train': (np.full((9, 2), np.nan), np.arange(9) % 2)}"),
     "found NaN or an infinity in sample 0"),
}  # fmt: skip

LISTS = {
    "no clients": (nothing, "expected a file at 'clients.csv'"),
    "an empty list of clients": (text(""), "the file is empty"),
    "clients without the column": (text("user\n1\n"), "expected a header with the column client"),
    "a client's index out of range": (text("client,index\n1,400\n"),
     "expected indices of training samples, 0 to 319, found 400"),
    "a sample of two clients": (text("client,index\n1,4\n2,4\n"), "expected each index once, found 4 twice"),
    "fewer clients than the scenario has": (text("client\n1\n2\n"), "expects at most 2 clients"),
    "endless clients": (never_ends, "found a device"),
    "a pipe of clients": (never_begins, "found a named pipe"),
}  # fmt: skip

JSON_LISTS = {
    "clients that are no JSON": (text("{"), "not JSON (line 1"),
    "a number of clients": (text("3"), "expected a mapping or a list, found 3"),
}  # fmt: skip

PROFILES = {
    "no profile": (nothing, "fleet.0.profile: "),
    "an empty profile": (text(""), "expected YAML, found nothing"),
    "an endless profile": (never_ends, "expected a YAML file, found a device"),
    "a pipe of a profile": (never_begins, "expected a YAML file, found a named pipe"),
}  # fmt: skip

TRACES = {
    "no trace": (nothing, "expected a file or a folder at 'trace.csv'"),
    "an empty trace": (text(""), "expected a header with the names of columns, found none"),
    "a trace of words": (text("seconds,bits_per_second\n0,fast\n"), "line 2: bits_per_second: expected a number"),
    "a trace of negative capacity": (text("seconds,bits_per_second\n0,-5\n1,3\n"), "found '-5'"),
    "an endless trace": (never_ends, "found a device"),
    "a pipe of a trace": (never_begins, "found a named pipe"),
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


RIGHT: dict[str, Callable[[Path], object]] = {
    "net.py": forward("return self.head(self.first(x.flatten(1)))"),
    "train.npz": npz,
    "test.npz": and_then(lambda path: npz(path.with_name("train.npz")), npz),
    "train.parquet": table(x=X[:, 0], y=Y),
    "pictures": images,
    "data.py": text("import numpy as np\ndef load():\n    return {'train': (np.eye(9), np.arange(9) % 2)}"),
    "clients.csv": text("client\n" + "".join(f"{index % 8}\n" for index in range(320))),
    "clients.json": text(str([index % 8 for index in range(320)])),
    "mine.yaml": lambda path: path.write_text(shipped.files("device_profiles")["raspberry-pi-5"].read_text("utf-8")),
    "trace.csv": text("seconds,bits_per_second\n0,5e6\n1,3e6\n"),
}


@pytest.fixture(autouse=True)
def _in_time():
    def late(*_):
        raise TimeoutError(f"not done after {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("file", RIGHT)
def test_the_right_file_is_accepted(tmp_path, monkeypatch, capsys, file):
    scenario = next(scenario for scenario, name, _ in GROUPS if name == file)
    (tmp_path / "my.yaml").write_text(dump_yaml(copy.deepcopy(SMALL) | scenario))
    RIGHT[file](tmp_path / file)
    monkeypatch.chdir(tmp_path)
    assert main(["scenario", "validate", "my.yaml"]) == 0, capsys.readouterr().err


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
