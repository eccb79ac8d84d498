"""Each round is compared with the shortest one that could return as many updates; the expected ratios are by hand."""

import json

import pyarrow.parquet as pq
import pytest

from edgefl.experiment import run
from edgefl.experiment.wiring import world_of

from ..small_runs import CELLS

LATENCY, COMPUTE = 0.02, 2.0
FLEET = [
    {"profile": "raspberry-pi-4", "share": 0.5, "link": "quick"},
    {"profile": "jetson-nano", "share": 0.5, "link": "slow"},
]
QUICK, SLOW = {"down": "8 Mbit/s", "up": "4 Mbit/s"}, {"down": "2 Mbit/s", "up": "1 Mbit/s"}


def star(server):
    return {"kind": "star", "server": {"down": server, "up": server}, "latency": "20 ms"}


def by_hand(small, server="9 Gbit/s", **changes):
    """Every client computes for 2 s; half of them have links of 8 and 4 Mbit/s, the others of 2 and 1 Mbit/s."""
    fixed = {
        "fleet": FLEET,
        "network__links": {"quick": QUICK, "slow": SLOW},
        "network__topology": star(server),
        "cost": {"kind": "seconds", "methods": {"fedavg": "2 s"}},
        "training__rounds": 2,
        "evaluation__optimum": True,
    }
    return small(**(fixed | changes))


def clients_of(scenario):
    """The clients with quick links, and those with slow ones."""
    names = [str(name) for name in world_of(scenario, 0).fleet.link_names()]
    return tuple([client for client, name in enumerate(names) if name == kind] for kind in ("quick", "slow"))


def ran(scenario, out, **options):
    folder = run(scenario, out=out, **{"train": False} | options) / scenario.methods[0].label / "seed-0"
    summary = json.loads((out / "summary.json").read_text())["methods"][scenario.methods[0].label][0]
    return pq.read_table(folder / "rounds.parquet").to_pydict(), summary


def alone(bits, down, up):
    """The seconds of a client that shares no link."""
    return LATENCY + bits / down + COMPUTE + LATENCY + bits / up


def model_bits(rows):
    return 8 * rows["bytes_down"][0] / rows["participants"][0]


def test_a_slow_client_in_place_of_a_quick_one_makes_the_round_longer_by_its_links(small, tmp_path):
    quick, slow = clients_of(by_hand(small))
    cohort = {"kind": "fixed", "clients": sorted([quick[0], slow[0]])}
    rows, summary = ran(by_hand(small, training__selection=cohort, training__cohort=2), tmp_path / "run")
    bits = model_bits(rows)
    expected = alone(bits, 2e6, 1e6) / alone(bits, 8e6, 4e6)
    assert rows["ratio_to_optimum"] == pytest.approx([expected] * 2, rel=1e-9)
    assert summary["ratio_to_optimum"] == pytest.approx(expected, rel=1e-9)


def test_more_updates_than_quick_clients_need_slow_ones(small, tmp_path):
    rows, _ = ran(by_hand(small, training__cohort=8), tmp_path / "run")
    assert rows["ratio_to_optimum"] == pytest.approx([1.0, 1.0], rel=1e-9)


def test_the_best_round_over_a_narrow_server_is_the_one_that_fills_its_uplink(small, tmp_path):
    """Four quick clients are ready at once, and the server receives their four models at 4 Mbit/s."""
    up = {"kind": "star", "server": {"down": "9 Gbit/s", "up": "4 Mbit/s"}, "latency": "20 ms"}
    quick, slow = clients_of(by_hand(small))
    cohort = {"kind": "fixed", "clients": sorted(quick[:2] + slow[:2])}
    scenario = by_hand(small, training__selection=cohort, training__cohort=4, network__topology=up)
    rows, _ = ran(scenario, tmp_path / "run")
    bits = model_bits(rows)
    best = LATENCY + bits / 8e6 + COMPUTE + LATENCY + 4 * bits / 4e6
    # The slow clients keep their 1 Mbit/s: the fair share of four transfers over 4 Mbit/s is not less.
    assert rows["seconds"][0] == pytest.approx(alone(bits, 2e6, 1e6), rel=1e-9)
    assert rows["ratio_to_optimum"] == pytest.approx([alone(bits, 2e6, 1e6) / best] * 2, rel=1e-9)


def test_a_round_that_its_deadline_closes_is_compared_for_the_updates_that_arrived(small, tmp_path):
    quick, slow = clients_of(by_hand(small))
    free, _ = ran(by_hand(small, training__cohort=8), tmp_path / "free")
    bits = model_bits(free)
    deadline = (alone(bits, 2e6, 1e6) + alone(bits, 8e6, 4e6)) / 2
    cohort = {"kind": "fixed", "clients": sorted([quick[0], *slow])}
    protocol = {"kind": "synchronous", "deadline": f"{deadline!r} s"}
    rows, _ = ran(by_hand(small, training__selection=cohort, training__cohort=5, protocol=protocol), tmp_path / "late")
    assert rows["aggregated"] == [1, 1]
    assert rows["ratio_to_optimum"] == pytest.approx([deadline / alone(bits, 8e6, 4e6)] * 2, rel=1e-9)


@pytest.mark.full
@pytest.mark.parametrize(
    "changes",
    [
        {"evaluation__optimum": False},
        {"protocol": {"kind": "asynchronous"}},
        {"protocol": {"kind": "hierarchical"}, "network__topology": CELLS},
        {"cost": {"kind": "measured"}, "methods": [{"method": "fedbr"}]},
        {"protocol": {"kind": "synchronous", "deadline": "1 ms"}},
    ],
    ids=["not asked for", "without rounds", "cells", "blocks", "no update"],
)
def test_where_the_ratio_has_no_meaning_the_column_is_null(small, tmp_path, changes):
    rows, summary = ran(by_hand(small, **changes), tmp_path / "run")
    assert rows["ratio_to_optimum"] == [None] * len(rows["round"])
    assert "ratio_to_optimum" not in summary
