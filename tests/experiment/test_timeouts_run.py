"""Runs with training over links that fail: verified, planned and reported."""

import json

import pytest

from edgefl.cli import main
from edgefl.experiment import run
from edgefl.planning.planning import plan
from edgefl.record import RunPaths
from edgefl.report.timeline.data import read_timeline
from edgefl.report.timeline.usage import breakdown_of, traffic_of
from edgefl.rerun.verify import verify

from ..small_runs import FAILING, TIMEOUTS


@pytest.fixture(name="scenario")
def scenario_fixture(small):
    """The small scenario over links that fail."""

    def make(**changes):
        return small(**{**FAILING, **changes})

    return make


@pytest.mark.full
def test_page_timeline_and_report_show_the_broken_attempts(scenario, small, tmp_path, capsys):
    folder = run(scenario(), out=tmp_path / "run")
    timeline = read_timeline(RunPaths(folder).of("fedavg", 0).folder)
    assert any(broken.wait for broken in timeline.broken.values())
    for round, parts in zip(timeline.rounds, breakdown_of(timeline), strict=True):
        assert parts.download + parts.upload == pytest.approx(round.exposed)
    traffic = traffic_of(timeline)
    bytes = json.loads((folder / "summary.json").read_text())["methods"]["fedavg"][0]["bytes"]
    for fate, count in bytes["by_fate"].items():
        assert traffic.down.get(fate, 0) + traffic.up.get(fate, 0) == count
    assert traffic.down["useful"] + traffic.up["useful"] == bytes["useful"]
    assert main(["report", str(folder), "--html", str(tmp_path / "page.html")]) == 0
    assert " of broken attempts" in (tmp_path / "page.html").read_text()

    assert main(["timeline", str(folder), "--method", "fedavg", "-o", str(tmp_path / "trace.json")]) == 0
    slices = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    broken = [each["args"] for each in slices if each["name"] in ("download, broken", "upload, broken")]
    assert sorted((each["bytes_lost"], each["seconds_until_next_attempt"]) for each in broken) == sorted(
        (each.bytes, each.wait) for each in timeline.broken.values()
    )
    assert len(broken) > 3

    whole = run(small(), out=tmp_path / "whole", train=False)
    assert "transfers" not in json.loads((whole / "summary.json").read_text())["methods"]["fedavg"][0]
    capsys.readouterr()
    for each, shown in ((whole, False), (folder, True)):
        assert main(["report", str(each)]) == 0
        assert ("repeated attempts" in capsys.readouterr().out) == shown


def test_a_plan_counts_the_seconds_of_outages(scenario):
    slow = plan(scenario()).methods[0]
    fast = plan(scenario(network__transport={"timeouts": {**TIMEOUTS, "first_wait": "10 ms"}})).methods[0]
    assert slow.seconds > fast.seconds


def test_a_run_in_which_every_transfer_fails_says_so(scenario, tmp_path):
    never = {"timeouts": {"connection": "1 ms", "retries": 1, "first_wait": "10 ms"}}
    folder = run(scenario(network__transport=never, training__rounds=20), out=tmp_path / "run", train=False)
    (result,) = json.loads((folder / "summary.json").read_text())["methods"]["fedavg"]
    assert result["stop"]["reason"] == "stalled"
    assert "30 dropped out (timeout)" in result["stop"]["message"]
    assert result["transfers"] == {"breaks": 60, "retries": 30, "failed": 30}
    assert verify(folder) == []
