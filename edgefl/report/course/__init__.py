"""The course of a run, read from its event log: transfers, computations, rounds, and figures derived from them."""

from edgefl.report.course.course import Computation, Course, Round, Transfer, course_of, read_course
from edgefl.report.course.critical import Bottleneck, Breakdown, bottleneck_counts, bottlenecks_of, breakdown_of
from edgefl.report.course.usage import ClientUse, Traffic, traffic_of, use_of_clients

__all__ = [
    "Bottleneck",
    "Breakdown",
    "ClientUse",
    "Computation",
    "Course",
    "Round",
    "Traffic",
    "Transfer",
    "bottleneck_counts",
    "bottlenecks_of",
    "breakdown_of",
    "course_of",
    "read_course",
    "traffic_of",
    "use_of_clients",
]
