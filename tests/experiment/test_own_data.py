"""Data of users' own: every engine trains alike on them, and a run goes on only with the same data."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from edgefl.experiment import run
from edgefl.scenario import load_scenario, resolve
from edgefl.yaml_file import dump_yaml

from ..small_runs import SMALL


def write(path, seed=0, count=400):
    """Float tables of ten clients, each with a class that is frequent."""
    rng = np.random.default_rng(seed)
    client = np.arange(count) % 10
    labels = np.where(rng.random(count) < 0.5, client % 3, rng.integers(0, 3, count))
    inputs = rng.standard_normal((count, 6)) + 2 * np.eye(3, 6)[labels]
    np.savez(path, x=inputs, y=labels, client=client)


@pytest.fixture
def table(tmp_path):
    """A folder with a scenario and its data, and the scenario."""
    folder = tmp_path / "mine"
    folder.mkdir()
    write(folder / "train.npz")
    write(folder / "test.npz", seed=1, count=100)
    data = {"name": "arrays", "train": "train.npz", "test": "test.npz", "clients": 10, "partition": {"kind": "natural"}}
    scenario = {**SMALL, "data": data, "model": {"name": "mlp", "widths": [16, 8]}}
    scenario["training"] = {"rounds": 5, "cohort": 4, "local": {"epochs": 4, "batch": 8, "lr": 0.1}}
    scenario["methods"] = ["fedavg", "scaffold", "moon"]
    (folder / "my.yaml").write_text(dump_yaml(scenario))
    return folder


@pytest.mark.full
def test_data_that_changed_between_two_runs_of_one_process_are_read_again(table):
    first, second = [], []
    for found in (first, second):
        folder = run(load_scenario(table / "my.yaml"), out=table / f"run{len(first)}", engine="sequential")
        found.append(json.loads((folder / "summary.json").read_text()))
        write(table / "train.npz", seed=9)
    assert first[0]["inputs"]["data"] != second[0]["inputs"]["data"]
    assert first[0]["methods"]["fedavg"][0]["accuracy"] != second[0]["methods"]["fedavg"][0]["accuracy"]


def test_paths_start_at_the_scenarios_folder_and_do_not_decide(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = resolve(load_scenario(table / "my.yaml"))["data"]
    assert data["train"] == str(table / "train.npz")
    assert (data["test"], data["test_data"]) == ("whole", str(table / "test.npz"))
    moved = tmp_path / "moved"
    table.rename(moved)
    other = tmp_path / "mine"
    other.mkdir()
    for name in ("train.npz", "test.npz", "my.yaml"):
        (other / name).write_bytes((moved / name).read_bytes())
    one, two = (run(load_scenario(folder / "my.yaml"), out=folder / "run", train=False) for folder in (moved, other))
    assert (one / "summary.json").read_bytes() == (two / "summary.json").read_bytes()
    changed = load_scenario(moved / "my.yaml", {"data.train": "mine/train.npz"})
    assert changed.data.train == str(other / "train.npz")
    monkeypatch.setenv("EDGEFL_DATA", str(moved))
    (other / "train.npz").unlink()
    assert load_scenario(other / "my.yaml").data.train == str(moved / "train.npz")


@pytest.mark.full
def test_clients_without_tests_of_their_own_may_be_the_last(table):
    arrays = dict(np.load(table / "test.npz"))
    kept = arrays["client"] < 8
    np.savez(table / "test.npz", **{name: values[kept] for name, values in arrays.items()})
    folder = run(
        load_scenario(table / "my.yaml", {"data.test": "partitioned", "data.test_data": str(table / "test.npz")}),
        out=table / "run",
    )
    tested = pq.read_table(folder / "fedavg/seed-0/clients.parquet").column("tested").to_pylist()
    assert [count > 0 for count in tested] == [True] * 8 + [False] * 2
