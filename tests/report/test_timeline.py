"""The trace keeps the rules of the Chrome trace-event format, and tells what the log tells."""

import itertools
import json
import math
from collections import defaultdict

import pytest

from edgefl.cli.entry import main
from edgefl.errors import UserError
from edgefl.record.events import Event
from edgefl.report.timeline.data import read_timeline, timeline_of
from edgefl.report.timeline.gantt import LOOKS, gantt_data, gantt_figure
from edgefl.report.timeline.trace import CLIENTS, trace_of
from edgefl.report.timeline.usage import covered

# What each phase must have beside ph, pid, tid and ts, by the format's own description.
REQUIRED = {
    "X": {"dur", "name"},
    "M": {"args", "name"},
    "C": {"args", "name"},
    "s": {"id", "name"},
    "f": {"id", "name"},
}


@pytest.fixture(scope="module", params=[("small_run", "fedbr"), ("late_run", "fedadc")], ids="-".join)
def timeline(request):
    name, label = request.param
    return read_timeline(request.getfixturevalue(name).path / label / "seed-0")


@pytest.fixture(scope="module")
def trace(timeline):
    return json.loads(json.dumps(trace_of(timeline, "a run")))


def test_every_event_has_the_fields_of_its_phase(trace):
    for event in trace["traceEvents"]:
        assert REQUIRED[event["ph"]] <= event.keys()
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert event["ts"] >= 0
        assert event.get("dur", 0) >= 0
        assert math.isfinite(event["ts"])


def test_every_thread_and_process_is_named_once_and_numbered_uniquely(trace):
    names = [event for event in trace["traceEvents"] if event["name"] in ("thread_name", "process_name")]
    threads = [event["tid"] for event in names if event["name"] == "thread_name"]
    assert len(threads) == len(set(threads))
    assert {event["tid"] for event in trace["traceEvents"] if event["ph"] == "X"} == set(threads)
    assert {event["pid"] for event in trace["traceEvents"]} == {
        event["pid"] for event in names if event["name"] == "process_name"
    }


def test_slices_of_a_thread_never_overlap(trace):
    tracks = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            tracks[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in tracks.values():
        ordered = sorted(spans)
        for (_, end), (start, _) in itertools.pairwise(ordered):
            assert start >= end - 0.0015  # times are written to a thousandth of a microsecond


def test_every_arrow_has_one_tail_and_one_head_each_within_a_slice(trace):
    slices = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            slices[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    tails = {event["id"]: event for event in trace["traceEvents"] if event["ph"] == "s"}
    heads = {event["id"]: event for event in trace["traceEvents"] if event["ph"] == "f"}
    count = sum(event["ph"] in "sf" for event in trace["traceEvents"])
    assert tails.keys() == heads.keys()
    assert count == 2 * len(tails) > 0
    for number, tail in tails.items():
        head = heads[number]
        assert tail["ts"] <= head["ts"]
        assert (tail["cat"], tail["name"]) == (head["cat"], head["name"])
        for end in (tail, head):
            assert any(start - 0.0015 <= end["ts"] <= stop + 0.0015 for start, stop in slices[end["tid"]])


def test_each_link_carries_its_flows_and_the_counters_come_back_to_zero(timeline, trace):
    links = {link for transfer in timeline.transfers for link in transfer.links}
    last = {event["name"]: event["args"] for event in trace["traceEvents"] if event["ph"] == "C"}
    for source, target in links:
        assert last[f"{source} → {target}: flows"] == {"flows": 0}
        assert last[f"{source} → {target}: Mbit/s"] == {"load": 0}
    flows = [event for event in trace["traceEvents"] if event.get("cat") == "flow"]
    assert len(flows) == sum(len(transfer.links) for transfer in timeline.transfers)
    assert max(event["args"]["flows"] for event in trace["traceEvents"] if "flows" in event.get("args", {})) > 1


def test_a_window_of_rounds_tells_what_touches_them_and_no_more(timeline):
    some = trace_of(timeline, "a run", (2, 3))["traceEvents"]
    began, ended = (1e6 * time for time in (timeline.rounds[1].began, timeline.rounds[2].ended))
    rounds = [event["name"] for event in some if event.get("cat") == "round"]
    assert rounds == ["round 2", "round 3"]
    for event in some:
        if event["ph"] == "X":
            assert event["ts"] < ended
            assert event["ts"] + event["dur"] > began - 0.002
    with pytest.raises(UserError, match="expected rounds of this run"):
        trace_of(timeline, "a run", (3, 99))


def test_the_picture_of_a_round_has_a_row_for_everybody_in_it(timeline):
    number = 3
    figure = gantt_figure(timeline, number, "a run")
    rows = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    took_part = {job.client for job in timeline.computations if job.round == number}
    assert took_part <= {int(row.split(",")[0].removeprefix("client ")) for row in rows}


@pytest.mark.full
def test_no_time_of_the_client_that_closed_a_round_is_blank(timeline):
    """Its downloads, the framework's time, its computation and its upload fill the round, in the picture and trace."""
    for round in [each for each in timeline.rounds if each.critical >= 0]:
        trace, length = (
            trace_of(timeline, "a run", (round.number, round.number))["traceEvents"],
            round.ended - round.began,
        )
        names = {each["tid"]: each["args"]["name"] for each in trace if each["name"] == "thread_name"}
        own = [
            (max(each["ts"], 1e6 * round.began), min(each["ts"] + each["dur"], 1e6 * round.ended))
            for each in trace
            if each["ph"] == "X" and each["pid"] == CLIENTS and each["args"]["round"] == round.number
            and names[each["tid"]].startswith(f"client {round.critical},")
        ]  # fmt: skip
        assert covered(own) == pytest.approx(1e6 * length, abs=0.01)
        axes = gantt_figure(timeline, round.number, "a run").axes[0]
        rows = [label.get_text().partition(",")[0] for label in axes.get_yticklabels()]
        row = rows.index(f"client {round.critical}")
        bars = [each for each in axes.patches if abs(each.get_y() + each.get_height() / 2 - row) < 0.2]
        assert covered((each.get_x(), each.get_x() + each.get_width()) for each in bars) == pytest.approx(length)


@pytest.mark.full
def test_the_command_writes_both_and_refuses_what_is_not_there(small_run, tmp_path, capsys):
    run, trace, picture = str(small_run.path), tmp_path / "trace.json", tmp_path / "round.png"
    assert main(["timeline", run, "--method", "fedbr", "--rounds", "2-4", "-o", str(trace), "--png", str(picture)]) == 0
    assert json.loads(trace.read_text())["displayTimeUnit"] == "ms"
    assert picture.read_bytes().startswith(b"\x89PNG")
    capsys.readouterr()
    for arguments, message in (
        (["--method", "fedbr"], "expected an output file"),
        (["--method", "fedavgg", "-o", str(trace)], "did you mean 'fedavg'"),
        (["--method", "fedavg", "--seed", "9", "-o", str(trace)], "no seed 9"),
        (["--method", "fedavg", "--rounds", "x", "-o", str(trace)], "expected rounds such as"),
        (["--method", "fedavg", "-o", str(tmp_path / "no" / "file")], "cannot be written"),
        (["--method", "fedavg", "--png", str(tmp_path / "file.nothing")], "cannot be written"),
    ):
        assert main(["timeline", run, *arguments]) == 2
        assert message in capsys.readouterr().err


def test_each_failure_is_a_slice_until_its_end_or_that_of_the_run() -> None:
    rows = [
        Event(1.0, "failure", client=3, item="crash"),
        Event(2.0, "failure", item="outage", source="internet", target="client/1"),
        Event(2.5, "failure", client=3, item="restart"),
        Event(4.0, "failure", client=3, item="crash"),
        Event(5.0, "stop", item="rounds"),
    ]
    timeline = timeline_of(rows)
    assert timeline.failures == {"client 3": [(1.0, 2.5), (4.0, math.inf)], "internet → client/1": [(2.0, math.inf)]}
    trace = trace_of(timeline, "a run")
    names = {event["tid"]: event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "thread_name"}
    slices = [
        (names[each["tid"]], each["name"], each["ts"], each["dur"])
        for each in trace["traceEvents"]
        if each["ph"] == "X"
    ]
    assert slices == [
        ("client 3: failures", "crashed", 1e6, 1.5e6),
        ("internet → client/1: failures", "outage", 2e6, 3e6),
        ("client 3: failures", "crashed", 4e6, 1e6),
    ]


def test_the_pages_bars_are_those_of_the_log_in_ten_thousandths_of_their_round(timeline):
    [method] = gantt_data({"a": timeline})
    assert [each["round"] for each in method["rounds"]] == [each.number for each in timeline.rounds]
    for found, round in zip(method["rounds"], timeline.rounds, strict=True):
        for kind, own in (("compute", timeline.computations), ("framework", timeline.frameworks)):
            seconds = covered(
                (max(each.started, round.began), min(each.ended, round.ended))
                for each in own
                if each.client == round.critical and each.started < round.ended and each.ended > round.began
            )
            bars = found["rows"].get(f"client {round.critical}", ())
            shown = sum(end - start for of, start, end, _ in bars if list(LOOKS)[of] == kind)
            assert shown * found["seconds"] / 10_000 == pytest.approx(seconds, abs=3e-4 * found["seconds"])
