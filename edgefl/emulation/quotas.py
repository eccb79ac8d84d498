"""The CPU quotas that stand for the devices of a scenario."""

from __future__ import annotations

import os

from edgefl.cpu_quota import LEAST, MOST, CpuQuota
from edgefl.errors import UserError
from edgefl.fleet import FleetAssignment, assign
from edgefl.scenario import Scenario
from edgefl.simulation.cost_specs import MeasuredCost
from edgefl.simulation.protocol_specs import AsynchronousSpec


def quotas_of(fleet: FleetAssignment, dilation: float) -> list[float]:
    """The part of one processor for each client; a slower clock divides it.

    Args:
        fleet: the clients' devices.
        dilation: real seconds for one second of the scenario.

    Raises:
        UserError: a profile has no quota, or one that cannot be set.
    """
    for profile in fleet.profiles:
        quota = profile.compute.cpu_quota
        if quota is None:
            raise UserError(
                f"--compute real needs a CPU quota for each device, and '{profile.name}' has none; expected a profile "
                "of `edgefl profile measure --cpu-quota Q`",
                field="fleet",
            )
        if not LEAST <= quota / dilation <= MOST:
            raise UserError(
                f"expected quotas from {LEAST:g} to {MOST:g} processors, found {quota / dilation:g} for "
                f"'{profile.name}'; it is compute.cpu_quota / --dilate",
                field="fleet",
            )
    quotas = [profile.compute.cpu_quota or 0.0 for profile in fleet.profiles]
    return [quotas[group] / dilation for group in fleet.group.tolist()]


def at_a_time(scenario: Scenario) -> int:
    """The number of clients that may train at the same time."""
    protocol, cohort = scenario.protocol, scenario.training.cohort
    return protocol.under_way(cohort) if isinstance(protocol, AsynchronousSpec) else protocol.picked(cohort)


def check_real_training(scenario: Scenario, dilation: float) -> None:
    """Refuse a scenario whose clients cannot train in real time here.

    Raises:
        UserError: the cost is not that of the executed steps, a device has no quota, the processors are too few, or
            this system cannot set quotas.
    """
    if not isinstance(scenario.cost, MeasuredCost):
        raise UserError("expected kind: measured with --compute real: training takes its own time", field="cost")
    processors = os.cpu_count() or 1
    for seed in scenario.seeds:
        quotas = quotas_of(assign(scenario.fleet, scenario.data.clients, seed), dilation)
        needed = sum(sorted(quotas, reverse=True)[: at_a_time(scenario)])
        if needed > processors:
            raise UserError(
                f"clients that train at the same time need {needed:.3g} processors, this machine has {processors}; "
                f"expected --dilate {needed / processors * dilation:.3g} or more, or a smaller cohort",
                field="training.cohort",
            )
    with CpuQuota():
        pass
