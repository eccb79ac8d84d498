"""The course of a run, read from its event log: transfers, computations, rounds, and figures derived from them."""

from edgefl.report.course.course import Computation, Course, Round, Transfer, read_course
from edgefl.report.course.critical import Brake, Breakdown, brake_of, breakdown_of, held_back
from edgefl.report.course.usage import ClientUse, Traffic, traffic_of, use_of_clients

__all__ = [
    "Brake",
    "Breakdown",
    "ClientUse",
    "Computation",
    "Course",
    "Round",
    "Traffic",
    "Transfer",
    "brake_of",
    "breakdown_of",
    "held_back",
    "read_course",
    "traffic_of",
    "use_of_clients",
]
