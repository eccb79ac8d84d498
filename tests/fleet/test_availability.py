"""When devices are there: against intervals worked out by hand, and a plain search through them."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from edgefl.errors import UserError
from edgefl.fleet import Accidents, Attendance, FleetGroup, assign
from edgefl.fleet.availability import Windows, read_trace


def group(**options):
    return FleetGroup(profile="raspberry-pi-5", link="link", **{"share": 1.0, **options})


def fleet_of(clients=100, **options):
    return assign([group(**options)], clients, seed=0)


@pytest.fixture(name="trace")
def trace_fixture(tmp_path):
    path = tmp_path / "trace.json"
    device = {"duration": 30, "active": [10, 50], "inactive": [20, 70], "finish_time": 100}
    path.write_text(json.dumps({"3": device}), encoding="utf-8")
    return path


@st.composite
def rows_of_windows(draw):
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        turns = sorted(draw(st.lists(st.integers(0, 100), max_size=8)))
        turns = turns[: len(turns) // 2 * 2]
        rows.append(([float(t) for t in turns[::2]], [float(t) for t in turns[1::2]], 100.0))
    return rows


def plainly_there(row, seconds):
    starts, ends, period = row
    return any(a <= seconds % period < b for a, b in zip(starts, ends, strict=True))


@settings(max_examples=20)
@given(rows_of_windows(), st.floats(0, 1000))
def test_windows_agree_with_a_plain_search_and_hold_until_they_say(rows, seconds):
    windows = Windows.of(rows)
    index = np.arange(len(rows))
    there, stays = windows.state(index, np.full(len(rows), seconds))
    for number, row in enumerate(rows):
        assert there[number] == plainly_there(row, seconds)
        moments = [seconds + k * 0.4999 for k in range(400)]
        changed = next((m - seconds for m in moments if plainly_there(row, m) != there[number]), math.inf)
        assert stays[number] <= changed + 1e-6
        if math.isfinite(stays[number]):
            assert stays[number] > 0


@settings(max_examples=40)
@given(rows_of_windows(), st.floats(-3000, 3000), st.floats(0.5, 2000))
def test_the_share_of_a_window_is_the_length_of_its_available_parts(rows, begin, length):
    number = len(rows)
    found = Windows.of(rows).share(np.arange(number), np.full(number, begin), np.full(number, begin + length))
    for row, share in zip(rows, found.tolist(), strict=True):
        starts, ends, period = row
        first, last = math.floor(begin / period), math.floor((begin + length) / period)
        there = sum(
            max(0.0, min(end + turn * period, begin + length) - max(start + turn * period, begin))
            for turn in range(first, last + 1)
            for start, end in zip(starts, ends, strict=True)
        )
        assert share == pytest.approx(there / length, abs=1e-6)


def test_attendance_forecasts_with_each_clients_own_clock(trace):
    fleet = fleet_of(6, availability={"kind": "trace", "file": str(trace)})
    asked = np.array([4, 1])
    found = Attendance(fleet, 0).share(asked, 30.0, 90.0)
    plain = Attendance(fleet, 0)
    moments = np.arange(30.0, 90.0, 0.01) + 0.005
    there = np.mean([plain.there(moment)[asked] for moment in moments], axis=0)
    assert found == pytest.approx(there, abs=1e-3)
    assert Attendance(fleet_of(3), 0).share(np.arange(3), 0.0, 1.0).tolist() == [1, 1, 1]


def test_a_trace_says_who_is_there_and_repeats(trace):
    attendance = Attendance(fleet_of(1, availability={"kind": "trace", "file": str(trace), "shift": False}), seed=0)
    moments = [0, 10, 19.5, 20, 50, 69, 70, 109, 110, 120]
    seen = [bool(attendance.there(float(moment))[0]) for moment in moments]
    assert seen == [False, True, True, False, True, True, False, False, True, False]
    assert attendance.leaves(0, 120.0) == 120.0
    assert attendance.next_arrival(120.0) == pytest.approx(150)


def test_a_shifted_trace_has_the_rows_mean_attendance(trace):
    fleet = fleet_of(20_000, availability={"kind": "trace", "file": str(trace)})
    assert Attendance(fleet, seed=1).there(0.0).mean() == pytest.approx(0.3, abs=0.01)


def test_a_synthetic_day_has_its_share_and_its_peak():
    fleet = fleet_of(20_000, availability={"kind": "diurnal", "share": 0.3, "peak": "2 h", "spread": "3 h"})
    attendance = Attendance(fleet, seed=3)
    hours = [attendance.there(hour * 3600.0).mean() for hour in range(7 * 24)]
    assert np.mean(hours) == pytest.approx(0.3, abs=0.005)
    for day in range(7):
        assert int(np.argmax(hours[day * 24 : day * 24 + 24])) in (1, 2, 3)
        assert min(hours[day * 24 : day * 24 + 24]) < 0.02


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", r"not JSON \(line 1: Expecting property name"),
        ('[{"active": [1]}]', "expected {duration"),
        ('[{"active": [1, 5, 7], "inactive": [2], "finish_time": 9}]', "as many times .* found 3 and 1"),
        ('[{"active": [3], "inactive": [2], "finish_time": 9}]', "end after they begin, within 9 s, found 3-2"),
        ('[{"active": [3], "inactive": [20], "finish_time": 9}]', "within 9 s, found 3-20"),
        ('[{"active": [3], "inactive": [4], "finish_time": 0.5}]', "a finish_time of 1 s or more, found 0.5"),
        ('[{"active": [NaN], "inactive": [4], "finish_time": 9}]', "found nan-4"),
    ],
)
def test_a_broken_trace_is_explained_with_its_file(tmp_path, content, complaint):
    path = tmp_path / "broken.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=complaint) as caught:
        fleet_of(2, availability={"kind": "trace", "file": str(path)})
    assert caught.value.field == "fleet.0.availability.file"
    assert "broken.json" in str(caught.value)


WINDOWS = {
    "no length": ([10, 60], [10, 60], []),
    "one without": ([10, 30, 50], [30, 30, 60], [(10, 30), (50, 60)]),
    "overlapping": ([10, 20], [40, 30], [(10, 40)]),
    "touching": ([10, 30], [30, 50], [(10, 50)]),
    "in any order": ([60, 10], [70, 20], [(10, 20), (60, 70)]),
    "no end": ([10, 60], [20], [(10, 20), (60, 100)]),
    "no start": ([60], [20, 70], [(0, 20), (60, 70)]),
    "start": ([], [20], [(0, 20)]),
    "always": ([0], [], [(0, 100)]),
}


@pytest.mark.parametrize(("active", "inactive", "windows"), WINDOWS.values(), ids=WINDOWS)
def test_windows_as_they_circulate(tmp_path, active, inactive, windows):
    path = tmp_path / "trace.json"
    device = {"active": active, "inactive": inactive, "finish_time": 100, "model": "CPH1801"}
    path.write_text(json.dumps({"7": device}), encoding="utf-8")
    found = read_trace(str(path))
    assert list(zip(found.starts.tolist(), found.ends.tolist(), strict=True)) == windows


def test_a_missing_trace_and_an_unknown_kind_are_refused(tmp_path):
    with pytest.raises(UserError, match="expected a file at"):
        fleet_of(2, availability={"kind": "trace", "file": str(tmp_path / "none.json")})
    with pytest.raises(ValidationError, match="diurnal"):
        group(availability={"kind": "weekly"})


def test_accidents_have_their_chance_and_happen_evenly_while_computing():
    accidents = Accidents(fleet_of(20_000, dropout=0.2), seed=4)
    after = np.array([accidents.after(client, 3) for client in range(20_000)])
    assert (after < 1).mean() == pytest.approx(0.2, abs=0.01)
    assert after[after < 1].mean() == pytest.approx(0.5, abs=0.02)
    again = Accidents(fleet_of(20_000, dropout=0.2), seed=4)
    assert [again.after(client, 3) for client in (7, 5)] == [after[7], after[5]]
    assert Accidents(fleet_of(5), seed=4).after(0, 0) == 1.0
