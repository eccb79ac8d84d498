"""The page's batteries and map agree with what the run itself summed up."""

import copy

import pytest

from edgefl.experiment import run
from edgefl.report.page.fleet_pictures import battery_data, map_data
from edgefl.report.page.series import series_of
from edgefl.report.run_result import RunResult
from edgefl.scenario.loading import check

from ..small_runs import CELLS, SMALL


def made(folder, **changes):
    run(check({**copy.deepcopy(SMALL), **changes}), out=folder, train=False)
    return RunResult(folder)


def test_a_battery_ends_with_what_the_summary_says_is_left(tmp_path):
    batteries = [{"capacity": "8 J", "start": {"low": 0.5, "high": 1}}, {"capacity": "6 J", "charging": "1 W"}]
    fleet = [{**of, "overrides": {"battery": own}} for of, own in zip(SMALL["fleet"], batteries, strict=True)]
    result = made(tmp_path / "run", fleet=fleet)
    [found] = battery_data(series_of([result]))
    lines = {client: (device, [left for _, left in line]) for client, device, line in found["lines"]}
    for device, use in result.results["fedavg"][0].batteries.items():
        assert lines[use.client][0] == device
        assert lines[use.client][1][-1] == pytest.approx(use.left, abs=0.01 if device == "jetson-nano" else 1e-4)
    own = lines[result.results["fedavg"][0].batteries["raspberry-pi-4"].client][1]
    assert own == sorted(own, reverse=True)  # never charged


def test_the_map_carries_the_bytes_of_the_summary_and_each_round_is_closed_once(tmp_path):
    result = made(tmp_path / "run", network={**SMALL["network"], "topology": CELLS})
    [found] = map_data(series_of([result]))
    [entry] = result.results["fedavg"]
    ends = [link for link in found["links"] if any(node.startswith("client/") for node in link[:2])]
    assert sum(there + back for *_, there, back, _ in ends) == entry.bytes.down + entry.bytes.up
    assert sum(closed for _, closed, _ in found["clients"].values()) == found["rounds"] == entry.rounds
    assert all(0 < load <= 1 for *_, load in found["links"])
    assert {"server", "cell/0", "cell/1"} <= {node for link in found["links"] for node in link[:2]}
