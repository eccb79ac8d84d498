"""A sound log passes; a log edited by hand does not, whatever was edited."""

from __future__ import annotations

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from edgefl.experiment import run
from edgefl.rerun.verify import verify

from ..small_runs import CELLS


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run with prefetches, blocks, drops by a deadline and an exhausted budget."""
    import copy

    from edgefl.scenario.loading import check

    from ..small_runs import SMALL

    data = copy.deepcopy(SMALL)
    data.update(
        methods=[{"method": "fedadc", "overlap": True}, "fedbr"],
        protocol={"kind": "synchronous", "deadline": "80 ms"},
        budgets={"joules": 1.0},
        stop="rounds",
    )
    data["training"]["rounds"] = 6
    return run(check(data), out=tmp_path_factory.mktemp("verify") / "run")


def test_a_sound_run_passes(finished):
    assert verify(finished) == []


def test_a_run_with_partial_work_passes_and_its_bytes_have_one_fate_each(small, tmp_path):
    protocol = {"deadline": "70 ms", "late": "partial", "reserve": 1.2}
    changes = {"methods": ["fedavg", "fedbr"], "protocol": protocol, "training__local__epochs": 3}
    folder = run(small(**changes), out=tmp_path / "run")
    assert verify(folder) == []
    steps = pq.read_table(folder / "fedavg" / "seed-0" / "events.parquet").to_pylist()
    assert any(row["kind"] == "compute_partial" for row in steps)
    for entries in json.loads((folder / "summary.json").read_text())["methods"].values():
        told = entries[0]["bytes"]
        assert sum(told["by_fate"].values()) == told["wasted"]


def test_a_run_passes_whose_clock_ticks_coarsely_after_years(small, tmp_path):
    """The difference of two moments after 1.4e8 seconds is known to some 1e-8 s, and a step takes milliseconds."""
    slow = {"5g": {"down": "1 bit/s", "up": "10 Mbit/s"}}
    changes = {"model": "mobilenet_v2", "network__links": slow, "training__rounds": 2, "methods": ["fednova"]}
    folder = run(small(**changes), out=tmp_path / "run", train=False)
    events = pq.read_table(folder / "fednova" / "seed-0" / "events.parquet").to_pylist()
    assert max(row["time"] for row in events if row["kind"] == "compute_end") > 1.4e8
    assert verify(folder) == []


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_run_whose_server_update_diverged_passes(small, tmp_path, monkeypatch, value):
    from edgefl.methods.servers.mean import Mean

    plain, calls = Mean.update, []

    def diverging(self, parameters, deltas, weights, state, facts):
        calls.append(1)
        updated, state = plain(self, parameters, deltas, weights, state, facts)
        return (updated * value if len(calls) > 2 else updated), state

    monkeypatch.setattr(Mean, "update", diverging)
    folder = run(small(keep_models="server"), out=tmp_path / "run")
    (entry,) = json.loads((folder / "summary.json").read_text())["methods"]["fedavg"]
    assert (entry["stop"]["reason"], entry["rounds"]) == ("diverged", 2)
    assert verify(folder) == []


def first(rows, **values):
    return next(row for row in rows if all(row[name] == value for name, value in values.items()))


def earlier_time(rows):
    rows[len(rows) // 2]["time"] -= 1.0


def missing_end(rows):
    rows.remove(first(rows, kind="transfer_end"))


def second_end(rows):
    row = first(rows, kind="transfer_end")
    rows.insert(rows.index(row), dict(row))


def fewer_bytes_delivered(rows):
    first(rows, kind="transfer_end")["bytes"] -= 1


def more_bytes_sent(rows):
    first(rows, kind="transfer_start")["bytes"] += 8


def both_sizes(rows):
    start = first(rows, kind="transfer_start")
    start["bytes"] *= 2
    start["detail"] = json.dumps({**json.loads(start["detail"]), "parts": {"model": start["bytes"]}})
    first(rows, kind="transfer_end", flow=start["flow"])["bytes"] *= 2


def smaller_capacity(rows):
    first(rows, kind="capacity")["value"] /= 2


def shorter_computation(rows):
    first(rows, kind="compute_end")["seconds"] *= 0.9


def cheaper_work(rows):
    first(rows, kind="work")["flops"] *= 0.5


def faster_work(rows):
    row = first(rows, kind="work")
    for each in rows:
        if each["item"] == row["item"]:
            each["seconds"] *= 0.5


def thriftier_radio(rows):
    first(rows, kind="transfer_end")["joules"] *= 0.5


def thriftier_idling(rows):
    first(rows, kind="idle")["joules"] *= 0.5


def two_places(rows):
    row = first(rows, kind="compute_start")
    rows.insert(rows.index(row), dict(row))


def stranger(rows):
    row = first(rows, kind="compute_end")
    for each in rows:
        if each["round"] == row["round"] and each["client"] == row["client"]:
            each["client"] = (row["client"] + 1) % 8 if row["client"] != 7 else 0


def uninvited_update(rows):
    row = first(rows, kind="aggregation")
    facts = json.loads(row["detail"])
    facts["clients"] = sorted({*facts["clients"], 0, 1, 2, 3, 4, 5, 6, 7})
    row.update(detail=json.dumps(facts), value=float(len(facts["clients"])))


def another_fate(rows):
    row = next(row for row in rows if row["kind"] == "aggregation" and row["value"] > 0)
    facts = json.loads(row["detail"])
    lost = {"kind": "lost", "client": facts["clients"][0], "dispatch": facts["dispatches"][0], "item": "late"}
    rows.insert(rows.index(row) + 1, {**row, **lost, "detail": ""})


def better_accuracy(rows):
    first(rows, kind="evaluation")["value"] = 0.99


def another_reason(rows):
    rows[-1]["item"] = "bytes"


def missing_stop(rows):
    rows.pop()


def missing_round(rows):
    rows.remove(first(rows, kind="round_end"))


def shorter_round(rows):
    first(rows, kind="round_end")["value"] *= 0.5


def hidden_more(rows):
    row = next(r for r in rows if r["kind"] == "round_end" and r["client"] >= 0)
    row["detail"] = json.dumps({**json.loads(row["detail"]), "hidden_seconds": 99.0})


def damaged_detail(rows):
    first(rows, kind="aggregation")["detail"] = "{"


EDITS = [
    earlier_time, missing_end, second_end, fewer_bytes_delivered, more_bytes_sent, both_sizes, smaller_capacity,
    shorter_computation, cheaper_work, faster_work, thriftier_radio, thriftier_idling, two_places, stranger,
    uninvited_update, another_fate, better_accuracy, another_reason, missing_stop, missing_round, shorter_round,
    hidden_more, damaged_detail,
]  # fmt: skip


@pytest.mark.parametrize("label", ["fedadc", "fedbr"])
@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
def test_a_log_edited_by_hand_is_caught(finished, tmp_path, edit, label):
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    path = copy / label / "seed-0" / "events.parquet"
    table = pq.read_table(path)
    rows = table.to_pylist()
    edit(rows)
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    assert verify(copy)


@pytest.mark.parametrize(
    "change",
    [
        lambda entry: entry.update(seconds=entry["seconds"] * 0.9),
        lambda entry: entry.update(joules=entry["joules"] + 1),
        lambda entry: entry.update(flops=entry["flops"] * 2),
        lambda entry: entry.update(rounds=entry["rounds"] + 1),
        lambda entry: entry["bytes"].update(down=entry["bytes"]["down"] - 1),
        lambda entry: entry.update(rounds_without_update=entry["rounds_without_update"] + 1),
        lambda entry: entry.update(refused=entry["refused"] + 1),
        lambda entry: entry.update(client_bytes=entry["client_bytes"] + 1),
        lambda entry: entry["bytes"].update(useful=0),
        lambda entry: entry["accuracy"].update(final=1.0),
        lambda entry: entry["accuracy"].update(best=1.0),
        lambda entry: entry["communication"].update(hidden_seconds=5.0),
        lambda entry: entry["stop"].update(reason="target"),
        lambda entry: entry["budgets"][0].update(accuracy=0.9),
        lambda entry: entry["targets"][0].update(reached=not entry["targets"][0]["reached"], seconds=1.0, rounds=1),
    ],
)
def test_a_summary_edited_by_hand_is_caught(finished, tmp_path, change):
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    path = copy / "summary.json"
    summary = json.loads(path.read_text())
    change(summary["methods"]["fedadc"][0])
    path.write_text(json.dumps(summary))
    assert verify(copy)


def test_another_age_of_front_blocks_is_caught(finished, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    path = copy / "summary.json"
    summary = json.loads(path.read_text())
    blocks = summary["methods"]["fedbr"][0]["blocks"]
    assert blocks["front_age"] > 1
    for forged in (blocks["front_age"] - 0.5, None):
        blocks["front_age"] = forged
        path.write_text(json.dumps(summary))
        (told,) = verify(copy)
        assert told.startswith(f"fedbr, seed 0: blocks.front_age: summary.json has {forged}, the log gives ")


@pytest.mark.parametrize(
    "protocol",
    [
        {"kind": "asynchronous", "buffer": 2},
        {"kind": "hierarchical"},
        {"deadline": "60 ms", "late": "partial"},
        {"over_select": 1.5},
        {"retries": 2},
    ],
    ids=str,
)
def test_the_age_of_front_blocks_follows_from_the_log_under_every_protocol(small, tmp_path, protocol):
    fleet = [{"profile": "raspberry-pi-4", "share": 1, "link": "5g", "dropout": 0.3}]
    topology = {"network__topology": CELLS} if protocol.get("kind") == "hierarchical" else {}
    methods = ["fedbr", {"method": "fedbr", "as": "uncharged", "first_send": "none", "full_every": 3}, "fedavg"]
    changes = {"methods": methods, "protocol": protocol, "fleet": fleet, "training__rounds": 12, **topology}
    folder = run(small(**changes), out=tmp_path / "run", train=False)
    assert verify(folder) == []
    told = json.loads((folder / "summary.json").read_text())["methods"]
    assert all(told[label][0]["blocks"]["front_age"] > 0 for label in ("fedbr", "uncharged"))
    assert "blocks" not in told["fedavg"][0]


@pytest.mark.parametrize("column", ["seconds", "accuracy", "bytes_up", "joules", "flops", "aggregated", "refused"])
def test_rounds_edited_by_hand_are_caught(finished, tmp_path, column):
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    path = copy / "fedadc" / "seed-0" / "rounds.parquet"
    table = pq.read_table(path)
    rows = table.to_pylist()
    rows[0][column] += 1
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    assert verify(copy)


def test_another_fleet_does_not_explain_the_log(finished, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    path = copy / "scenario.yaml"
    text = path.read_text()
    path.write_text(text.replace("raspberry-pi-4", "raspberry-pi-9"))
    assert verify(copy)
