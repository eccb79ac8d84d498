"""Data from a function of the user: arrays or PyTorch data sets, and one message for everything that is wrong."""

import re
from pathlib import Path

import numpy as np
import pytest

from edgefl.cli import main
from edgefl.data.dataset import load
from edgefl.data.spec import data_set
from edgefl.errors import UserError
from edgefl.tasks.regression import Regression
from edgefl.yaml_file import dump_yaml

from ...small_runs import SMALL

pytestmark = pytest.mark.usefixtures("any_python_file")

CODE = """
import numpy as np, torch

X = np.arange(240.0).reshape(60, 4) % 7
Y = np.arange(60) % 3

def load():
    return {"train": (X, Y), "test": (X[:12], Y[:12])}

def share(size=60, seed=0):
    print("loading", size)
    return {"train": (X[:size], Y[:size] + seed * 0)}

def lists():
    return {"train": [X.tolist(), list(Y), [f"c{y}" for y in Y]]}

def tensors():
    return {"train": (torch.from_numpy(X).requires_grad_(), torch.from_numpy(Y), torch.from_numpy(Y))}

class Samples(torch.utils.data.Dataset):
    def __init__(self, clients=False):
        self.clients = clients

    def __len__(self):
        return 60

    def __getitem__(self, index):
        sample = torch.from_numpy(X[index]), int(Y[index])
        return (*sample, f"c{Y[index]}") if self.clients else sample

def data_sets(clients=False):
    return {"train": Samples(clients), "test": torch.utils.data.Subset(Samples(clients), range(30))}
"""


@pytest.fixture
def code(tmp_path):
    def make(name="load", text=CODE, **args):
        (tmp_path / "data.py").write_text(text)
        return data_set({"python": f"{tmp_path / 'data.py'}:{name}", "clients": 3, "args": args})

    return make


@pytest.mark.parametrize(
    ("name", "args"),
    [("lists", {}), ("tensors", {}), ("data_sets", {}), ("data_sets", {"clients": True}), ("load", {})],
)
def test_arrays_lists_tensors_and_pytorch_data_sets_give_the_same_samples(code, name, args):
    train, test = load(code(name, **args))
    whole = name in ("data_sets", "load")
    assert len(train) == (60 if whole else 48)
    x = np.arange(240.0).reshape(60, 4) % 7
    if whole:
        assert (train.inputs.numpy() == x).all()
        assert train.labels.tolist() == (np.arange(60) % 3).tolist()
    both = np.concatenate([part.inputs.numpy() for part in (train, test)])
    assert {tuple(row) for row in both} == {tuple(row) for row in x}
    if name in ("lists", "tensors") or args:
        assert (train.owner == train.labels.numpy()).all()


def test_a_csv_file_next_to_the_functions_is_read_from_there_and_as_parquet(code, tmp_path, monkeypatch):
    rows = ["rooms,area,price", *(f"{row % 4},{row}.5,{3 * row}.25" for row in range(30))]
    (tmp_path / "houses.csv").write_text("\n".join(rows))
    page = (Path(__file__).parents[3] / "docs" / "data.md").read_text(encoding="utf-8")
    place = 'Path(__file__).parent / "houses.csv"'
    assert place in page
    text = f"import numpy as np\nfrom pathlib import Path\n\ndef load():\n    table = np.loadtxt({place}, "
    text += "delimiter=',', skiprows=1)\n    return {'train': (table[:, :2], table[:, 2])}\n"
    spec = code(text=text).for_task(Regression())
    monkeypatch.chdir(tmp_path)
    exec("import pyarrow.csv, pyarrow.parquet\n" + re.search(r"`(pyarrow\.parquet\.write_table[^`]+)`", page)[1])
    converted = {"name": "arrays", "train": "houses.parquet", "inputs": ["rooms", "area"], "target": "price"}
    parquet = data_set({**converted, "clients": 3}).for_task(Regression())
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    found = spec.read()[0]
    assert found.inputs.shape == (24, 2)
    monkeypatch.chdir(tmp_path)
    assert np.array_equal(parquet.read()[0].inputs, found.inputs)
    assert np.array_equal(parquet.read()[0].labels, found.labels)


def test_the_function_is_called_once_with_its_arguments(code, capsys):
    spec = code("share", size=30)
    for _ in range(2):
        assert sum(spec.describe().train) == 24
        assert len(load(spec)[0]) == 24
    assert capsys.readouterr() == ("", "loading 30\n")
    assert len(load(code("share", size=40))[0]) == 32
    assert len(load(code("share", CODE.replace("Y[:size]", "Y[:size] * 0"), size=40))[0]) == 32


def value(text):
    return CODE + f"\ndef f():\n    return {text}\n"


WRONG = {
    "raises with a line": ("def f():\n    g()\ndef g():\n    1 / 0\n", "line 4: 'f' raised an error: ZeroDivision"),
    "exits": ("import sys\ndef f():\n    sys.exit(3)\n", "line 3: 'f' raised an error: SystemExit: 3"),
    "takes other arguments": ("def f(n):\n    pass\n", "'f' raised an error: TypeError: f() missing 1 required"),
    "None": (value("None"), "expected 'f' to return a mapping with train and possibly test, found None"),
    "another split": (value("{'train': (X, Y), 'val': (X, Y)}"), "found the keys train, val"),
    "a number": (value("{'train': 3}"), "expected 'train' as a tuple of inputs, labels and possibly clients, or a"),
    "fewer labels": (value("{'train': (X, Y[:9])}"), "expected as many values in 'train labels' as in"),
    "unlike samples": (
        value("{'train': ([X[0], X[1, :2]], [0, 1])}"),
        "expected samples of one shape in 'train inputs'",
    ),
    "odd samples": (
        value("{'train': torch.utils.data.ConcatDataset([[1, (2, 3)]])}"),
        "expected every sample of 'train'",
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_wrong_is_one_message_that_names_the_file(code, tmp_path, kind):
    text, message = WRONG[kind]
    with pytest.raises(UserError) as refused:
        load(code("f", text))
    assert message in str(refused.value)
    assert str(tmp_path / "data.py") in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("reference", "message"),
    [("data.py", "expected FILE.py:NAME"), ("none.py:f", "none.py: no such file"), (3, "expected text, found 3")],
)
def test_a_reference_to_nothing_is_refused_with_its_field(tmp_path, capsys, reference, message):
    scenario = {**SMALL, "data": {"python": reference, "clients": 8}}
    (tmp_path / "my.yaml").write_text(dump_yaml(scenario))
    assert main(["scenario", "validate", str(tmp_path / "my.yaml")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert "data" in line
