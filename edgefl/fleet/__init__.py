"""Devices: speed, memory and power of each kind of device, and the device of each client.

A :class:`DeviceProfile` converts the operators of a training step into seconds (:func:`step_seconds`), and seconds and
bytes into joules (:func:`compute_joules`, :func:`idle_joules`, :func:`transfer_joules`). :func:`assign` distributes the
groups of a scenario's ``fleet:`` over its clients.
"""

from edgefl.fleet.assignment import FleetAssignment, FleetGroup, assign, group_counts, resolve
from edgefl.fleet.attendance import Accidents, Attendance, Heat, Pace, Slowdown
from edgefl.fleet.energy import (
    compute_joules,
    idle_joules,
    promotion_joules,
    tail_joules,
    training_watts,
    transfer_joules,
)
from edgefl.fleet.figure import Bound, Estimate, value
from edgefl.fleet.library import NamedProfile, all_profiles, load_profile, profile_names, read_profile
from edgefl.fleet.profile import DeviceProfile, Direction
from edgefl.fleet.roofline import (
    InputPipeline,
    Operator,
    fits,
    fleet_step_seconds,
    measured_step,
    step_evidence,
    step_seconds,
    step_signature,
    waits_for_launches,
)

__all__ = [
    "Accidents", "Attendance", "Bound", "DeviceProfile", "Direction", "Estimate", "FleetAssignment", "FleetGroup",
    "Heat", "InputPipeline", "NamedProfile", "Operator", "Pace", "Slowdown", "all_profiles", "assign", "compute_joules",
    "fits", "fleet_step_seconds", "group_counts", "idle_joules", "load_profile", "measured_step", "profile_names",
    "promotion_joules", "read_profile", "resolve", "step_evidence", "step_seconds", "step_signature", "tail_joules",
    "training_watts", "transfer_joules", "value", "waits_for_launches",
]  # fmt: skip
