"""Prefetching under cells that average, with real training."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.rerun.replay import replay
from edgefl.rerun.verify import verify

from ..small_runs import ACCIDENTS, CELLS

ON, OFF = {"method": "fedadc", "overlap": True, "as": "on"}, {"method": "fedadc", "as": "off"}


@pytest.fixture(name="scenario")
def scenario_fixture(small):
    """The small scenario in cells, with accidents, jitter and slow links."""

    def make(**changes):
        protocol = {"kind": "hierarchical", "retries": 1}
        return small(network__topology=CELLS, protocol=protocol, **ACCIDENTS, **changes)

    return make


def test_overlap_between_cells_changes_times_and_not_one_bit_of_accuracy(scenario, tmp_path):
    folder = run(scenario(methods=[ON, OFF], training__rounds=4), out=tmp_path / "run")
    on, off = (pq.read_table(folder / name / "seed-0" / "rounds.parquet").to_pylist() for name in ("on", "off"))
    for name in ("accuracy", "loss", "aggregated", "bytes_up"):
        assert [row[name] for row in on] == [row[name] for row in off]
    assert on[-1]["seconds"] < off[-1]["seconds"]


@pytest.mark.full
def test_overlap_between_cells_is_replayed_on_other_links_and_deadlines_are_not(scenario, tmp_path):
    folder = run(scenario(methods=[ON], training__rounds=4), out=tmp_path / "run")
    other = replay(folder, {"network.topology.backhaul.down": "1 Mbit/s"}, tmp_path / "replayed")
    assert verify(other) == []
    one, two = (pq.read_table(each / "on" / "seed-0" / "rounds.parquet").to_pylist() for each in (folder, other))
    assert [row["accuracy"] for row in one] == [row["accuracy"] for row in two]
    assert one[-1]["seconds"] < two[-1]["seconds"]
    closed = run(scenario(protocol__deadline="20 s", training__rounds=2), out=tmp_path / "bound")
    with pytest.raises(UserError, match="deadline: the aggregated updates depend on arrival times"):
        replay(closed, {"network.topology.backhaul.down": "1 Mbit/s"}, tmp_path / "never")
