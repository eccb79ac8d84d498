"""The timeline shows when clients and links were down."""

from __future__ import annotations

import math

from edgefl.record.events import Event
from edgefl.report.course.course import course_of
from edgefl.report.timeline import trace_of


def test_each_failure_is_a_slice_until_its_end_or_that_of_the_run() -> None:
    rows = [
        Event(1.0, "failure", client=3, item="crash"),
        Event(2.0, "failure", item="outage", source="internet", target="client/1"),
        Event(2.5, "failure", client=3, item="restart"),
        Event(4.0, "failure", client=3, item="crash"),
        Event(5.0, "stop", item="rounds"),
    ]
    course = course_of(rows)
    assert course.failures == {"client 3": [(1.0, 2.5), (4.0, math.inf)], "internet → client/1": [(2.0, math.inf)]}
    trace = trace_of(course, "a run")
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
