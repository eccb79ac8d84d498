"""A sound run passes under every protocol and transport; a row, figure or file that was changed is found."""

from __future__ import annotations

import copy
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from edgefl.experiment import run
from edgefl.experiment.wiring import step_costs
from edgefl.record import RunPaths
from edgefl.record.names import CLIENT_MODELS, SUMMARY
from edgefl.record.summary import read_run
from edgefl.rerun.laws import at
from edgefl.rerun.verify import differences, record_of, verify
from edgefl.scenario.loading import check

from ..small_runs import CELLS, SMALL


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """Two of three methods with prefetches, blocks, drops by a deadline and an exhausted budget."""
    data = copy.deepcopy(SMALL) | {
        "methods": [{"method": "fedadc", "overlap": True}, "fedbr", "fedavg"],
        "protocol": {"kind": "synchronous", "deadline": "80 ms"},
        "budgets": {"joules": 1.0},
        "keep_models": "clients",
    }
    data["training"]["rounds"] = 4
    return run(check(data), out=tmp_path_factory.mktemp("verify") / "run", methods=["fedadc", "fedbr"])


@pytest.fixture
def copied(finished, tmp_path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def test_a_sound_run_passes(finished):
    assert verify(finished) == []


OUTAGES = {
    "kind": "process", "quantiles": {0: "0.02 Mbit/s", 100: "0.1 Mbit/s"}, "step": "50 ms",
    "outage_every": "500 ms", "outage_length": "300 ms",
}  # fmt: skip
NARROW = {"kind": "star", "server": {"down": "90 kbit/s", "up": "90 kbit/s"}, "latency": "20 ms"}
SHAPES = {
    "asynchronous": {"protocol": {"kind": "asynchronous", "buffer": 2}},
    "hierarchical": {
        "network": {**SMALL["network"], "topology": {**CELLS, "sharing": "rate_fair"}},
        "protocol": {"kind": "hierarchical", "over_select": 1.5},
    },
    "retries": {"protocol": {"retries": 2}},
    "partial work": {"protocol": {"deadline": "60 ms", "late": "partial", "reserve": 1.2}},
    "traces": {
        "network": {
            "topology": SMALL["network"]["topology"],
            "links": {
                "5g": {
                    "down": {"kind": "process", "like": "5g_walking", "outage_every": "20 s"},
                    "up": "9 Mbit/s",
                    "latency": "5 ms",
                }
            },
        },
        "protocol": {"kind": "synchronous", "deadline": "2 s", "over_select": 1.5},
    },
    "tcp": {
        "network": {
            "topology": NARROW,
            "links": {"5g": {"down": "1 Mbit/s", "up": "1 Mbit/s"}},
            "transport": {"kind": "tcp", "packet_bytes": 100, "queue": "fifo"},
        },
        "protocol": {"kind": "synchronous", "deadline": "3 s"},
    },
    "timeouts": {
        "network": {
            "topology": SMALL["network"]["topology"],
            "links": {"5g": {"down": OUTAGES, "up": OUTAGES}},
            "transport": {
                "timeouts": {"connection": "100 ms", "transfer": "150 ms", "resume": "ranges", "chunk": "100 B"}
            },
        },
        "protocol": {"kind": "synchronous", "deadline": {"kind": "adaptive", "rounds": 2, "first": "2 s"}},
    },
}
PLAIN = ("asynchronous", "hierarchical")


@pytest.mark.parametrize(
    "shape", [name if name in PLAIN else pytest.param(name, marks=pytest.mark.full) for name in SHAPES]
)
def test_a_sound_run_of_every_protocol_and_transport_passes_with_its_age_of_front_blocks(tmp_path, shape):
    uncharged = {"method": "fedbr", "as": "uncharged", "first_send": "none", "full_every": 3}
    data = copy.deepcopy(SMALL) | {"methods": ["fedbr", uncharged]} | SHAPES[shape]
    data["training"]["rounds"] = 6
    data["fleet"][0]["dropout"] = 0.3
    folder = run(check(data), out=tmp_path / "run", train=False)
    assert verify(folder) == []
    found = json.loads((folder / SUMMARY).read_text())["methods"]
    assert all(found[label][0]["blocks"]["front_age"] > 0 for label in ("fedbr", "uncharged"))
    for (entry,) in found.values():
        assert sum(entry["bytes"]["by_fate"].values()) == entry["bytes"]["wasted"]


@pytest.mark.full
def test_a_run_whose_server_update_diverged_passes(small, tmp_path):
    folder = run(small(methods=[{"method": "fedavg", "server_lr": 1e37}]), out=tmp_path / "run")
    (entry,) = json.loads((folder / SUMMARY).read_text())["methods"]["fedavg"]
    assert entry["stop"]["reason"] == "diverged"
    assert verify(folder) == []


def first(rows, **values):
    return next(row for row in rows if all(row[name] == value for name, value in values.items()))


def both_sizes(rows):
    start = first(rows, kind="transfer_start")
    start["bytes"] *= 2
    start["detail"] = json.dumps({**json.loads(start["detail"]), "parts": {"model": start["bytes"]}})
    first(rows, kind="transfer_end", flow=start["flow"])["bytes"] *= 2


def faster_work(rows):
    row = first(rows, kind="work")
    for each in rows:
        if each["item"] == row["item"]:
            each["seconds"] *= 0.5


def rewrite(path, edit):
    table = pq.read_table(path)
    rows = table.to_pylist()
    edit(rows)
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)


@pytest.mark.parametrize(
    ("edit", "label"),
    [
        (lambda rows: rows[len(rows) // 2].update(time=rows[len(rows) // 2]["time"] - 1.0), "fedadc"),
        (lambda rows: rows.remove(first(rows, kind="transfer_end")), "fedbr"),
        (both_sizes, "fedadc"),
        (faster_work, "fedbr"),
        (lambda rows: first(rows, kind="evaluation").update(value=0.99), "fedadc"),
    ],
    ids=["earlier time", "missing end", "both sizes", "faster work", "better accuracy"],
)
def test_a_changed_log_is_found(copied, edit, label):
    rewrite(copied / label / "seed-0" / "events.parquet", edit)
    assert any(text.startswith(f"{label}, seed 0: ") for text in verify(copied))


def test_changed_rounds_are_found(copied):
    rewrite(copied / "fedadc" / "seed-0" / "rounds.parquet", lambda rows: rows[0].update(bytes_up=1))
    assert verify(copied)


@pytest.mark.parametrize(
    "change",
    [
        lambda entry: entry["bytes"].update(useful=0),
        lambda entry: entry["accuracy"].update(best=1.0),
        lambda entry: entry["metric"].update(samples=entry["metric"]["samples"] + 1),
        lambda entry: entry["blocks"].update(front_age=entry["blocks"]["front_age"] - 0.5),
    ],
    ids=["bytes", "accuracy", "samples", "front age"],
)
def test_a_changed_summary_is_found(copied, change):
    summary = json.loads((copied / SUMMARY).read_text())
    change(summary["methods"]["fedbr"][0])
    (copied / SUMMARY).write_text(json.dumps(summary))
    assert verify(copied)


def test_a_changed_scenario_is_found(copied):
    file = copied / "scenario.yaml"
    file.write_text(file.read_text().replace("weight_decay: 0.0", "weight_decay: 0.001"))
    assert verify(copied) == [f"{file} is not the scenario that the run was made from"]


def test_a_damaged_table_and_a_missing_model_are_named(copied):
    (copied / "fedadc/seed-0/events.parquet").write_bytes(b"PAR1")
    (copied / "fedbr/seed-0" / CLIENT_MODELS).unlink()
    damaged, missing = verify(copied)
    assert damaged.startswith("fedadc, seed 0: ")
    assert "events.parquet" in damaged
    assert missing == f"fedbr, seed 0: {CLIENT_MODELS} is missing"


@pytest.mark.full
def test_the_first_difference_of_two_executions_is_named(tmp_path):
    data = copy.deepcopy(SMALL)
    data["training"]["rounds"] = 2
    scenario = check(data | {"protocol": {"deadline": "100 ms"}, "methods": ["fedbr"]})
    folder = run(scenario, out=tmp_path / "run")
    (entry,) = read_run(folder)[1].methods["fedbr"]
    record = record_of(RunPaths(folder).of("fedbr", 0), scenario, "fedbr", entry)
    costs = step_costs(scenario, ["fedbr"])["fedbr"]
    assert list(differences(record, scenario, "fedbr", costs)) == []
    for place in [place for place, event in enumerate(record.events) if event.joules][::6]:
        events = [
            event._replace(joules=2 * event.joules) if k >= place else event for k, event in enumerate(record.events)
        ]
        (text,) = differences(replace(record, events=events), scenario, "fedbr", costs)
        assert text.startswith(f"{at(events[place])}: joules is {events[place].joules}, but")
