"""Lines about devices that ran empty, clients that never came, and rounds without a gain, against the event log."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from edgefl import simulate
from edgefl.record.metric import ACCURACY, Metric
from edgefl.record.tables import read_events
from edgefl.report import comparison
from edgefl.report.notices import last_gain, notices
from edgefl.rerun.verify import verify

from .conftest import seed_result

PHONES = {"profile": "phone-mid-range", "count": 6, "link": "w"}
BOARDS = {"profile": "raspberry-pi-4", "count": 6, "link": "w"}
WORLD = {
    "seeds": [0],
    "data": {"name": "synthetic", "shape": [1, 8, 8], "classes": 4, "train": 480, "test": 80, "clients": 12},
    "training.rounds": 30,
    "training.cohort": 4,
    "network.links": {"w": {"down": "20 Mbit/s", "up": "10 Mbit/s"}},
    "methods": ["fedavg"],
    "round_overhead": {},
    "budgets": None,
}
RARE = {"kind": "diurnal", "peak": "12 h", "share": 0.2, "spread": "1 min", "wander": "1 min"}


def run(folder, *fleet, **changes):
    return simulate("5g_100clients", out=folder, train=False, overrides={**WORLD, "fleet": list(fleet), **changes})


def battery(joules):
    return {**PHONES, "overrides": {"battery": {"capacity": f"{joules} J"}}}


@pytest.mark.full
@pytest.mark.parametrize(("joules", "empty"), [(0.3, True), (500.0, False)])
def test_batteries_are_those_of_the_log(tmp_path, joules, empty):
    found = run(tmp_path / "run", battery(joules), BOARDS)
    events = list(read_events(found.of("fedavg", 0).events))
    drawn = dict.fromkeys({each.client for each in events if "phone" in each.item} - {-1}, 0.0)
    for each in events:
        if each.client in drawn:
            drawn[each.client] += each.joules
    died = {}
    for each in events:
        if each.item == "battery":
            died.setdefault(each.client, each.time)
    (use,) = found.results["fedavg"][0].batteries.values()
    assert (use.clients, use.empty, bool(died)) == (6, len(died), empty)
    assert use.left == pytest.approx(1 - max(drawn.values()) / joules, abs=1e-5)
    if empty:
        assert (use.seconds, use.client) == min((time, client) for client, time in died.items())
        (line,) = [each for each in notices(found) if "empty" in each]
        assert line.startswith(f"{len(died)} of 6 phone-mid-range ran empty, first after ")
        assert line.endswith(f" (client {use.client}).")
        assert line in comparison(found).data["runs"][0]["notices"]
        assert line in comparison(found, detailed=True).markdown()
    else:
        assert drawn[use.client] == max(drawn.values())
        assert notices(found) == [
            f"Lowest battery left: {100 * use.left:.0f} % (phone-mid-range, client {use.client})."
        ]
    assert verify(found.path) == []


@pytest.mark.full
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "never available when clients were selected"),
        (
            {"protocol": {"kind": "asynchronous", "buffer": 2, "concurrency": 4}},
            "never available when clients were selected",
        ),
        (
            {"failures": [{"kind": "crash", "client": 3, "at": "0 s", "duration": "1 h"}]},
            "never available when clients were selected",
        ),
        ({"training.selection": {"kind": "fixed", "clients": [0, 1, 2, 3]}}, "never selected"),
    ],
)
def test_clients_that_never_took_part_are_those_without_an_event(tmp_path, changes, reason):
    fleet = [{**PHONES, "availability": RARE}, BOARDS] if "protocol" in changes or not changes else [PHONES, BOARDS]
    found = run(tmp_path / "run", *fleet, **changes)
    began = {each.client for each in read_events(found.of("fedavg", 0).events) if each.kind == "compute_start"}
    never = 12 - len(began)
    assert notices(found) == [f"{never} of 12 clients never took part ({reason})."]
    assert verify(found.path) == []


def test_where_all_take_part_or_chance_leaves_some_out_nothing_is_said(tmp_path):
    assert notices(run(tmp_path / "run", PHONES, BOARDS, **{"training.rounds": 3})) == []


def curve(run, label, values):
    """The rounds of one method with these metrics."""
    for result in run.results[label]:
        path = run.of(label, result.seed).rounds
        table = pq.read_table(path)
        for name in ("metric", "metric_ema"):
            table = table.set_column(table.column_names.index(name), name, pa.array(values, pa.float64()))
        pq.write_table(table, path)


RISING, ROUND = np.linspace(0.1, 0.9, 40), 1 + np.arange(40)
FLAT_AFTER_5 = np.where(ROUND < 5, 0.1 * ROUND, 0.6 + 0.002 * np.sin(ROUND))


@pytest.mark.parametrize(
    ("curves", "line"),
    [
        ({"a": RISING}, []),
        ({"a": FLAT_AFTER_5}, ["a: no gain after round 5: stopping there saves 88 % of the traffic."]),
        ({"a": RISING, "b": FLAT_AFTER_5}, ["b: no gain after round 5: stopping there saves 88 % of the traffic."]),
        (
            {"a": np.full(40, 0.1), "b": FLAT_AFTER_5},
            ["a: no gain after round 1: stopping there saves 98 % of the traffic; b: no gain after round 5, 88 %."],
        ),
        ({"a": np.where(ROUND < 35, 0.02 * ROUND, 0.7)}, []),  # 12 % of the traffic
    ],
)
def test_rounds_without_a_gain_are_named_where_they_cost_a_quarter_of_the_traffic(make_run, curves, line):
    run = make_run({label: [seed_result(0), seed_result(1)] for label in curves})
    for label, values in curves.items():
        curve(run, label, values)
    assert notices(run) == line


@pytest.mark.parametrize(
    ("values", "metric", "last"),
    [
        ([0.1, 0.9, 0.904, 0.9], ACCURACY, 1),
        ([0.1, 0.9, 0.91, 0.9], ACCURACY, 2),
        ([9.0, 2.0, 1.995, 2.1], Metric("rmse", "lower", share=False), 1),
        ([9.0, 2.0, 1.98, 2.1], Metric("rmse", "lower", share=False), 2),
    ],
)
def test_a_gain_is_half_a_point_or_half_a_percent(values, metric, last):
    assert last_gain(np.array(values), metric) == last
