"""Prefetching under cells that average and under asynchronous aggregation, with real training."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

from edgefl.errors import UserError
from edgefl.experiment import resume, run
from edgefl.rerun.replay import replay
from edgefl.rerun.verify import verify

from ..small_runs import CELLS, Stop, tree

FLEET = [
    {"profile": "raspberry-pi-4", "share": 0.5, "link": "5g", "dropout": 0.3},
    {"profile": "jetson-nano", "share": 0.5, "link": "5g", "overrides": {"compute": {"jitter": 0.3}}},
]
ON, OFF = {"method": "fedadc", "overlap": True, "as": "on"}, {"method": "fedadc", "as": "off"}
SCAFFOLD = {"method": "scaffold", "overlap": True}
PROTOCOLS = {
    "hierarchical": {"kind": "hierarchical", "retries": 1},
    "asynchronous": {"kind": "asynchronous", "buffer": 2, "concurrency": 3, "ahead": 2, "retries": 1},
}


@pytest.fixture(name="scenario")
def scenario_fixture(small):
    """The small scenario under a protocol, with accidents, jitter and slow links."""

    def make(protocol, **changes):
        settings = {"methods": [ON, SCAFFOLD], "protocol": PROTOCOLS[protocol], "training__rounds": 12, **changes}
        links = {"down": {"kind": "uniform", "low": "0.5 Mbit/s", "high": "4 Mbit/s"}, "up": "1 Mbit/s"}
        return small(network__topology=CELLS, network__links={"5g": links}, fleet=FLEET, **settings)

    return make


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_resumed_run_with_overlap_is_byte_identical_and_verifies(scenario, tmp_path, protocol):
    expected = run(scenario(protocol), out=tmp_path / "whole")
    assert verify(expected) == []
    items = {event["item"] for event in pq.read_table(expected / "on" / "seed-0" / "events.parquet").to_pylist()}
    assert {"prefetch", "retried"} <= items
    for number, after in enumerate((11, 17)):
        folder = tmp_path / f"run-{number}"
        with pytest.raises(KeyboardInterrupt):
            run(scenario(protocol), out=folder, listeners=[Stop(after)])
        assert tree(resume(folder)) == tree(expected)


def test_overlap_between_cells_changes_times_and_not_one_bit_of_accuracy(scenario, tmp_path):
    folder = run(scenario("hierarchical", methods=[ON, OFF]), out=tmp_path / "run")
    on, off = (pq.read_table(folder / name / "seed-0" / "rounds.parquet").to_pylist() for name in ("on", "off"))
    for name in ("accuracy", "loss", "aggregated", "bytes_up"):
        assert [row[name] for row in on] == [row[name] for row in off]
    assert on[-1]["seconds"] < off[-1]["seconds"]


def forged(folder, change):
    """The run's violations once its log of the overlapped method has been changed."""
    events = folder / "on" / "seed-0" / "events.parquet"
    table = pq.read_table(events)
    rows = table.to_pylist()
    change(rows)
    pq.write_table(table.from_pylist(rows, schema=table.schema), events)
    found = verify(folder)
    pq.write_table(table, events)
    return found


def test_a_log_that_was_tampered_with_is_found(scenario, tmp_path):
    cells = run(scenario("hierarchical", methods=[ON], training__rounds=5), out=tmp_path / "cells")

    def passes_on_too_much(rows):
        start = next(row for row in rows if row["kind"] == "transfer_start" and row["item"] == "prefetch")
        start["detail"] = json.dumps({**json.loads(start["detail"]), "parts": {"secret": start["bytes"]}})

    def late_accident(rows):
        drop = next(row for row in rows if row["kind"] == "dropout")
        drop["item"] = "unavailable"

    assert any("'secret', which it has not downloaded" in text for text in forged(cells, passes_on_too_much))
    assert any("without an accident" in text for text in forged(cells, late_accident))

    buffered = run(scenario("asynchronous", methods=[ON], training__rounds=8), out=tmp_path / "buffered")

    def older_model(rows):
        row = next(row for row in rows if row["kind"] == "dispatch" and row["round"] > 1)
        row["round"] -= 1

    def nobody_asked(rows):
        for row in rows:
            if row["kind"] == "decision" and row["item"] == "selection":
                facts = json.loads(row["detail"])
                row["detail"] = json.dumps({**facts, "clients": facts["clients"][:1]})

    def useful_after_all(rows):
        next(row for row in rows if row["kind"] == "lost" and row["item"] == "retried")["bytes"] = 0

    assert any("the latest is" in text for text in forged(buffered, older_model))
    assert any("was selected" in text for text in forged(buffered, nobody_asked))
    assert any("bytes for job" in text for text in forged(buffered, useful_after_all))
    assert verify(buffered) == []


def test_overlap_between_cells_is_replayed_on_other_links_and_deadlines_are_not(scenario, tmp_path):
    folder = run(scenario("hierarchical", methods=[ON], training__rounds=4), out=tmp_path / "run")
    other = replay(folder, {"network.topology.backhaul.down": "1 Mbit/s"}, tmp_path / "replayed")
    assert verify(other) == []
    one, two = (pq.read_table(each / "on" / "seed-0" / "rounds.parquet").to_pylist() for each in (folder, other))
    assert [row["accuracy"] for row in one] == [row["accuracy"] for row in two]
    assert one[-1]["seconds"] < two[-1]["seconds"]
    closed = run(scenario("hierarchical", protocol__deadline="20 s", training__rounds=2), out=tmp_path / "bound")
    with pytest.raises(UserError, match="deadline: the aggregated updates depend on arrival times"):
        replay(closed, {"network.topology.backhaul.down": "1 Mbit/s"}, tmp_path / "never")
