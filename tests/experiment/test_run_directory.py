"""What a run directory holds, and the labels of its methods."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import edgefl
from edgefl.errors import UserError
from edgefl.experiment import resume, run
from edgefl.record.costs import read_costs
from edgefl.record.names import CHECKPOINTS, OWN, SEED_FILES
from edgefl.report import RunResult, write_pictures
from edgefl.rerun.replay import Replay, write_sensitivity
from edgefl.rerun.verify import verify
from edgefl.scenario import load_scenario
from edgefl.scenario.loading import check

from ..small_runs import SMALL, Stop

METHODS = [{"method": "fedadc", "overlap": True}, "fedbr"]


def files(folder):
    """Every table of a run directory, by path."""
    return {path.relative_to(folder).as_posix(): pq.read_table(path) for path in sorted(folder.rglob("*.parquet"))}


def test_the_same_scenario_gives_the_same_bytes_and_a_method_alone_the_same_as_beside_others(small, tmp_path):
    first = run(small(methods=METHODS, training__rounds=2), out=tmp_path / "first")
    again = run(load_scenario(first / "scenario.yaml"), out=tmp_path / "again")
    for name in ("summary.json", "scenario.yaml", "costs.json"):
        assert (first / name).read_bytes() == (again / name).read_bytes()
    tables = files(first)
    assert tables == files(again)
    assert len(tables) == 4
    alone = run(small(methods=METHODS, training__rounds=2), out=tmp_path / "alone", methods=["fedbr"])
    entries = [json.loads((folder / "summary.json").read_text())["methods"]["fedbr"] for folder in (first, alone)]
    assert entries[0] == entries[1]
    assert {name: tables[name] for name in files(alone)} == files(alone)


def test_overlap_and_deltas_to_all_change_times_and_not_one_bit_of_accuracy(small, tmp_path):
    ways = {"off": {}, "on": {"overlap": True}, "all": {"full_to": "all"}}
    methods = [{"method": "fedadc", **options, "as": name} for name, options in ways.items()]
    folder = run(small(methods=methods, training__rounds=4), out=tmp_path / "run")
    tables = {name: pq.read_table(folder / name / "seed-0" / "rounds.parquet").to_pydict() for name in ways}
    summary = json.loads((folder / "summary.json").read_text())["methods"]
    for column in ("accuracy", "loss"):
        assert tables["off"][column] == tables["on"][column] == tables["all"][column]
    assert summary["all"][0]["bytes"]["down"] > summary["off"][0]["bytes"]["down"]
    assert summary["on"][0]["seconds"] < summary["off"][0]["seconds"]
    assert summary["on"][0]["communication"]["hidden_seconds"] > 0
    assert summary["off"][0]["communication"]["hidden_seconds"] == 0
    assert summary["on"][0]["bytes"] == summary["off"][0]["bytes"]


def test_fedbr_downloads_less_than_fedavg_under_both_ways_to_count(small, tmp_path):
    folder = run(small(methods=["fedavg", "fedbr"]), out=tmp_path / "run", train=False)
    summary = json.loads((folder / "summary.json").read_text())["methods"]
    fedavg, fedbr = summary["fedavg"][0], summary["fedbr"][0]
    assert fedbr["bytes"]["down"] == fedbr["blocks"]["actual"] < fedavg["bytes"]["down"]
    assert fedbr["blocks"]["uniform"] < fedavg["bytes"]["down"]
    assert fedbr["bytes"]["up"] == fedavg["bytes"]["up"]


def test_without_training_the_world_is_the_same(small, tmp_path):
    trained = run(small(), out=tmp_path / "trained")
    timed = run(small(), out=tmp_path / "timed", train=False)
    columns = ["round", "seconds", "bytes_down", "bytes_up", "flops", "joules", "participants", "aggregated"]
    path = "fedavg/seed-0/rounds.parquet"
    assert pq.read_table(trained / path, columns=columns) == pq.read_table(timed / path, columns=columns)
    entry = json.loads((timed / "summary.json").read_text())["methods"]["fedavg"][0]
    assert entry["accuracy"] == {"final": None, "best": None, "ema": None}


def test_the_summary_holds_what_its_schema_says_and_nothing_of_the_machine(small, tmp_path):
    folder = run(small(budgets={"seconds": 1.0, "bytes": "1 MB"}), out=tmp_path / "run")
    summary = json.loads((folder / "summary.json").read_text())
    assert set(summary) == {"schema", "scenario", "edgefl", "inputs", "software", "chosen", "methods"}
    entry = summary["methods"]["fedavg"][0]
    assert set(entry) == {
        "seed", "stop", "accuracy", "metric", "seconds", "rounds", "flops", "joules", "bytes", "communication",
        "targets", "budgets", "client_bytes", "rounds_without_update", "refused",
            "participants", "aggregated", "seconds_a_round", "useful_share",
    }  # fmt: skip
    assert set(entry["targets"][0]) == {
        "accuracy", "metric", "value", "reached", "seconds", "bytes", "rounds", "flops", "joules",
    }  # fmt: skip
    assert {budget["kind"] for budget in entry["budgets"]} == {"seconds", "bytes"}
    assert entry["bytes"]["useful"] + entry["bytes"]["wasted"] == entry["bytes"]["down"] + entry["bytes"]["up"]
    assert str(tmp_path) not in (folder / "summary.json").read_text()


def test_a_method_that_diverges_ends_with_the_reason_and_the_others_go_on(small, tmp_path):
    wild = {"method": "fedavg", "as": "wild", "local": {"lr": 1e30}}
    folder = run(small(methods=[wild, "fedavg"]), out=tmp_path / "run")
    methods = json.loads((folder / "summary.json").read_text())["methods"]
    assert methods["wild"][0]["stop"]["reason"] == "diverged"
    assert methods["wild"][0]["stop"]["message"].endswith("is not finite")
    assert methods["fedavg"][0]["stop"] == {"reason": "rounds", "round": 4}
    with pytest.raises(UserError, match="nothing to resume: its run is finished"):
        resume(folder)
    assert verify(folder) == []


WRONG = ["..", "a/b", ".hidden", "a b", "café", "a" * 101]


def labelled(label: object) -> dict:
    return {**copy.deepcopy(SMALL), "methods": [{"method": "fedavg", "as": label}]}


@pytest.mark.parametrize("label", ["summary.json", "Inputs", "SUMMARY.json", *WRONG, 3])
def test_a_label_that_cannot_name_a_folder_is_refused_with_its_field(label):
    with pytest.raises(UserError) as refusal:
        check(labelled(label))
    assert refusal.value.field == "methods.0.as"
    assert "expected" in refusal.value.message


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


ROWS = """
from torch import nn


class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows, self.head = nn.GRU(8, 6, batch_first=True), nn.Linear(6, 4)

    def forward(self, images):
        return self.head(self.rows(images.squeeze(1))[0][:, -1])
"""


@pytest.mark.full
def test_steps_that_differ_by_backend_are_measured_for_each(small, tmp_path):
    (tmp_path / "rows.py").write_text(ROWS, encoding="utf-8")
    model = {"python": str(tmp_path / "rows.py") + ":Rows"}
    for name, given, backends in (("cnn", {}, {"cpu"}), ("gru", {"model": model}, {"cpu", "cuda"})):
        folder = run(small(training__cohort=8, **given), out=tmp_path / name, train=False)
        rows = read_costs(folder / "costs.json")["fedavg"]
        assert {row.backend for row in rows} == backends
        assert verify(folder, trust=True) == []
    launches = {row.backend: sum(operator[3] for operator in row.operators) for row in rows}
    assert launches["cuda"] < 30 < launches["cpu"]
