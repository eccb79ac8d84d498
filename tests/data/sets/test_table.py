"""Tables of text files as data: separators, decimal commas, texts as classes and clients, and what is refused."""

import json

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.preprocessing import StandardScaler

from edgefl.cli import main
from edgefl.data.dataset import load
from edgefl.data.federated import load_federated
from edgefl.data.spec import data_set
from edgefl.errors import UserError
from edgefl.tasks.regression import Regression

from ...small_runs import SMALL

HEADER, ROWS = ["Länge", "π", "Sorte"], list(zip(*load_iris(return_X_y=True), strict=True))
NAMES = load_iris().target_names


def written(path, separator=",", comma=".", encoding="utf-8", quoted='"', header=True, rows=ROWS):
    """The iris table with two of its columns."""
    lines = [separator.join(HEADER)] * header
    for x, y in rows:
        first, second = (f"{quoted}{value:.1f}{quoted}".replace(".", comma) for value in x[:2])
        lines.append(separator.join([first, second, f'"{NAMES[y]}{separator} wild"']))
    path.write_bytes("\r\n".join(lines).encode(encoding))
    return str(path)


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"separator": ";", "comma": ","},
        {"separator": "\t", "encoding": "utf-16", "quoted": ""},
        {"separator": "|", "encoding": "utf-8-sig", "quoted": ""},
        {"comma": ","},
        {"header": False, "quoted": ""},
    ],
)
def test_every_form_gives_the_standardised_table(tmp_path, form):
    target = "Sorte" if form.get("header", True) else 3
    file = written(tmp_path / "iris.csv", **form)
    other = written(tmp_path / "other.csv", **form, rows=ROWS[::7])
    spec = data_set({"name": "table", "train": file, "test": other, "target": target, "clients": 2})
    train, test = load(spec)
    scaler = StandardScaler().fit(load_iris().data[:, :2])
    assert np.allclose(train.inputs, scaler.transform(load_iris().data[:, :2]), atol=1e-5)
    assert np.allclose(test.inputs, scaler.transform(load_iris().data[::7, :2]), atol=1e-5)
    assert train.labels.tolist() == load_iris().target.tolist()
    assert [name.partition(form.get("separator", ","))[0] for name in spec.class_names()] == NAMES.tolist()


def table(path, header, rows):
    path.write_text("\n".join([header, *rows]) + "\n")
    return str(path)


def test_clients_are_counted_named_and_hold_their_rows(tmp_path):
    file = table(tmp_path / "t.csv", "x,site,y", [f"{n},{('#10', 'Oslo', '#9')[n % 3]},{n % 2}" for n in range(60)])
    spec = data_set({"name": "table", "train": file, "target": "y", "client": "site", "standardise": False})
    data = load_federated(spec, seed=0)
    assert (spec.clients, spec.client_names()) == (3, ["#10", "#9", "Oslo"])
    for client, rest in enumerate((0, 2, 1)):
        assert set((data.train.inputs[data.shards.shard(client)] % 3).flatten().tolist()) == {rest}


def test_categories_become_inputs_and_targets_numbers(tmp_path):
    file = table(tmp_path / "t.csv", "day,x,price", [f"{['Mo', 'Di'][n % 2]},{n},{100 + n}.5" for n in range(40)])
    options = {"train": file, "target": "price", "one_hot": "day", "ignore": "x", "standardise": False, "clients": 2}
    spec = data_set({"name": "table", **options}).for_task(Regression())
    train, _ = load(spec)
    odd = (train.labels[:, 0] - 100.5) % 2 == 1
    assert train.inputs[odd].unique(dim=0).tolist() == [[1.0, 0.0]]
    assert train.inputs[~odd].unique(dim=0).tolist() == [[0.0, 1.0]]
    scaled = load(data_set({"name": "table", **options, "standardise": True}).for_task(Regression()))[0]
    assert float(scaled.labels.mean()) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (["1,,a", "2,NA,b", "3,5,"], {}, "found 3 missing: 'z' 2 .line 2. and 'y' 1"),
        (["1,Mo,a", "2,3,b"], {}, "found texts in 'z' ('Mo' in line 2)"),
        (["1,2,0.5", "2,3,1.5"], {}, "found 0.5; see task: regression"),
        (["1,2,a", "2,3,b"], {"target": "Y"}, "did you mean 'y'?"),
        (["1,2,a", "2,3,b"], {"ignore": ["x", "z"]}, "expected a column of inputs"),
        (["1,2,a", "2,3,b"], {"inputs": ["x", "y"]}, "two of 'y'"),
        ([f"{n},{n},a" for n in range(101)], {"one_hot": "z"}, "at most 100 categories in 'z', found 101"),
        (["1,2,a"], {"train": "missing.csv"}, "missing.csv"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path, rows, options, message):
    file = table(tmp_path / "t.csv", "x,z,y", rows)
    with pytest.raises(UserError, match=message.replace("(", r"\(").replace(")", r"\)").replace("?", r"\?")):
        load(data_set({"name": "table", "train": file, "target": "y", "clients": 1, **options}))


def test_the_table_is_shown_first_and_trains(tmp_path, capsys):
    table(tmp_path / "t.csv", "x,site,y,t", [f"{n},{'ab'[n % 2]},{('ok', 'hot')[n % 2]},0:{n}" for n in range(60)])
    data = {"name": "table", "train": "t.csv", "target": "y", "client": "site", "ignore": "t"}
    training = {**SMALL["training"], "rounds": 1, "cohort": 2}
    scenario = tmp_path / "my.yaml"
    scenario.write_text(json.dumps({**SMALL, "data": data, "model": {"name": "mlp"}, "training": training}))
    assert main(["data", "show", str(scenario)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[3:7] == [
        ["x", "input", "0", "to", "59,", "mean", "29.5,", "deviation", "17.32"],
        ["site", "client", "2", "clients:", "a,", "b"],
        ["y", "target", "2", "classes:", "hot,", "ok"],
        ["t", "not", "used"],
    ]
    assert ["0", "a"] in [line[:2] for line in lines]
    assert main(["simulate", str(scenario), "--out", str(tmp_path / "run")]) == 0
