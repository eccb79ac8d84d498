"""The profile, the link and the scenario of a calibrated client, as plain data."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from statistics import NormalDist
from typing import Any

import numpy as np

from edgefl.errors import UserError
from edgefl.experiment.wiring import shared_world, step_costs
from edgefl.fleet import DeviceProfile
from edgefl.fleet.profile import Load, slower
from edgefl.network.transport import Transport
from edgefl.profiling.calibration import Calibration, Way
from edgefl.profiling.measured_profile import with_evidence
from edgefl.scenario import Scenario, resolve
from edgefl.simulation.cost_specs import SecondsCost
from edgefl.simulation.work import batch_counts, local_seconds
from edgefl.units import spelt
from edgefl.validation import validated
from edgefl.version import __version__

PERCENTS = (1, 5, 10, 25, 50, 75, 90, 95, 99)


@dataclass(frozen=True)
class Predicted:
    """The local training of the logged client in a round of a method, on the undisturbed device of a profile."""

    label: str
    samples: int
    steps: int
    seconds: float


def predicted(scenario: Scenario, label: str, profile: DeviceProfile, samples: int | None = None) -> Predicted:
    """The local training of a client with so many samples (the median of the scenario's clients if not given)."""
    if isinstance(scenario.cost, SecondsCost):
        raise UserError("expected kind: measured or paper, because 'seconds' needs no device", field="cost.kind")
    costs = step_costs(scenario, [scenario.method(label).label])[label]
    if samples is None:
        samples = int(np.median(shared_world(scenario, scenario.seeds[0], None).samples))
    counts = batch_counts(costs.method.local, samples)
    blocks = costs.adapted_model().depth
    steps = {size: costs.step(blocks, size) for size in counts}
    seconds, _ = local_seconds(profile, steps, counts, costs.method.local.input)
    if not seconds > 0:
        raise UserError(f"expected local training that takes time, found {samples} samples and no step")
    return Predicted(label, samples, sum(counts.values()), seconds)


def profile_data(
    base: DeviceProfile, found: Calibration, training: Predicted, *, name: str, source: str, rounds: int, today: date
) -> dict[str, Any]:
    """The base profile at the fitted pace, with the measured variation, as plain data.

    ``training`` is on the base profile; ``source`` is the name of the log with so many ``rounds``.
    """
    pace = found.compute.mean / training.seconds
    other = slower(base, pace)
    # The log's seconds contain heat and other programs.
    changes = {"jitter": found.compute.sigma, "background_load": Load(low=0, high=0), "thermal": None}
    compute = other.compute.model_copy(update={**changes, "cpu_quota": None})
    data: dict[str, Any] = other.model_copy(update={"name": name, "compute": compute}).model_dump(
        mode="json", exclude_none=True
    )
    scaled = f"{base.name}'s, at {pace:.4g} times its seconds"
    evidence = (
        f"{rounds} measured rounds in {source}: {training.label}, {training.samples} samples, {training.steps} steps; "
        f"mean {found.compute.mean:.4g} s of local training, {base.name} would take {training.seconds:.4g} s"
    )
    data["description"] = f"Like {base.name}, at the pace of a measured client"
    count = rounds - found.compute.outliers
    confirmed = {
        "kind": "fitted",
        "source": f"measured rounds of one client, {source}; between kinds of operators as {base.name}",
        "count": count,
    }
    provenance = with_evidence(data["provenance"], confirmed, scaled)
    provenance["derivation"] |= {
        "compute.fp32_peak": scaled,
        "compute.jitter": f"standard deviation of the logarithm of {count} rounds' seconds",
    }
    data["provenance"] = provenance | {
        "sources": [f"edgefl {__version__}, profile calibrate: {evidence}", *base.provenance.sources],
        "date": today.isoformat(),
        "verified": False,
    }
    validated(DeviceProfile, data)
    return data


def link_data(found: Calibration, transport: Transport) -> dict[str, Any]:
    """The calibrated link as an entry of ``network.links``, for a scenario with this transport."""
    return {
        "down": _capacity(found.down, found.round_seconds, transport),
        "up": _capacity(found.up, found.round_seconds, transport),
        "latency": f"{found.delay / transport.latency_factor * 1e3:.4g} ms",
    }


def scenario_data(scenario: Scenario, link: str, link_spec: Mapping[str, Any], profile: str) -> dict[str, Any]:
    """The scenario with the calibrated device (a path from its folder) and link for all clients, as plain data."""
    data = resolve(scenario)
    data["fleet"] = [{"profile": profile, "share": 1, "link": link, "pace": 1}]
    data["network"]["links"] = {link: dict(link_spec)}
    return data


def _capacity(way: Way, round_seconds: float, transport: Transport) -> Any:
    """A capacity with log-normal values, one for each step of about a round; a plain rate if it does not vary."""
    rate = way.bits_per_second / transport.efficiency
    if not way.sigma:
        return _rate(rate)
    normal = NormalDist(0.0, way.sigma)
    quantiles = {percent: _rate(rate * float(np.exp(normal.inv_cdf(percent / 100)))) for percent in PERCENTS}
    step = f"{round_seconds:.4g} s"
    return {"kind": "process", "quantiles": quantiles, "step": step, "correlation": 0, "outage_length": step}


def _rate(bits_per_second: float) -> str:
    """Four digits are more than ten rounds can tell."""
    return spelt(float(f"{bits_per_second:.4g}"), "bits_per_second")
