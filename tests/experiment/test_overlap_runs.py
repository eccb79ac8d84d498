"""Prefetching under cells that average and under asynchronous aggregation, with real training."""

from __future__ import annotations

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
        settings = {"methods": [ON, SCAFFOLD], "protocol": PROTOCOLS[protocol], "training__rounds": 8, **changes}
        links = {"down": {"kind": "uniform", "low": "0.5 Mbit/s", "high": "4 Mbit/s"}, "up": "1 Mbit/s"}
        return small(network__topology=CELLS, network__links={"5g": links}, fleet=FLEET, **settings)

    return make


@pytest.mark.full
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_resumed_run_with_overlap_is_byte_identical_and_verifies(scenario, tmp_path, protocol):
    expected = run(scenario(protocol), out=tmp_path / "whole")
    assert verify(expected) == []
    items = {event["item"] for event in pq.read_table(expected / "on" / "seed-0" / "events.parquet").to_pylist()}
    assert {"prefetch", "retried"} <= items
    with pytest.raises(KeyboardInterrupt):
        run(scenario(protocol), out=tmp_path / "run", listeners=[Stop(6)])
    assert tree(resume(tmp_path / "run")) == tree(expected)


def test_overlap_between_cells_changes_times_and_not_one_bit_of_accuracy(scenario, tmp_path):
    folder = run(scenario("hierarchical", methods=[ON, OFF], training__rounds=4), out=tmp_path / "run")
    on, off = (pq.read_table(folder / name / "seed-0" / "rounds.parquet").to_pylist() for name in ("on", "off"))
    for name in ("accuracy", "loss", "aggregated", "bytes_up"):
        assert [row[name] for row in on] == [row[name] for row in off]
    assert on[-1]["seconds"] < off[-1]["seconds"]


@pytest.mark.full
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
