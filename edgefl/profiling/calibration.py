"""Fit the pace of a device and the capacities of its link to the measured rounds of one client.

A round's computation takes ``c exp(σ z - σ²/2)`` seconds, as in :mod:`edgefl.fleet.attendance`. A transfer of B bytes
takes ``l + 8 B / (r exp(σ z))`` seconds: l is the delay before the first byte, r the median capacity; z is a standard
normal number of each round. Outliers are left out: values whose logarithm is far from the others'.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgefl.cost.method_cost import STEADY_ROUND
from edgefl.csv_table import read_csv
from edgefl.errors import UserError, locating
from edgefl.experiment.wiring import shared_world, step_costs
from edgefl.fleet import DeviceProfile
from edgefl.fleet.changed_profile import slower
from edgefl.fleet.profile import Load
from edgefl.methods.codecs.by_tensor import encoded_sizes
from edgefl.network.tcp import Opening
from edgefl.network.transport import Transport
from edgefl.profiling.measured_profile import with_evidence
from edgefl.scenario import Scenario, resolve
from edgefl.simulation.cost_specs import SecondsCost
from edgefl.simulation.work import batch_counts, local_seconds
from edgefl.units import spelt
from edgefl.validation import validated
from edgefl.version import __version__

Values = NDArray[np.float64]

COLUMNS = ("round", "download_seconds", "compute_seconds", "upload_seconds", "bytes_down", "bytes_up")
LEAST_ROUNDS = 3
"""Fewer rounds say nothing about the variation from round to round."""

OUTLYING = 5.0
"""Robust standard deviations from the median beyond which a logarithm is an outlier."""

LEAST_DISTANCE = math.log(1.3)
"""No value within 30 % of the median is an outlier."""

STEADY = 0.005
"""A smaller standard deviation of logarithms counts as none."""

LEAST_RATE, GREATEST_RATE = 1.0, 1e15
"""Bit/s between which the rate of a TCP transfer is looked for."""


@dataclass(frozen=True)
class ClientLog:
    """The measured rounds of a client: seconds of transfers and of local training, and bytes; each ``[rounds]``."""

    download_seconds: Values
    compute_seconds: Values
    upload_seconds: Values
    bytes_down: Values
    bytes_up: Values

    @property
    def rounds(self) -> int:
        return len(self.compute_seconds)


def read_client_log(file: Path) -> ClientLog:
    """Read a CSV file with a header and the columns in :data:`COLUMNS`; other columns are ignored.

    One column ``bytes`` replaces ``bytes_down`` and ``bytes_up`` if as much was sent as received.
    """
    table = read_csv(file).of_equal_rows(file)
    both = "bytes" in table.header and "bytes_down" not in table.header and "bytes_up" not in table.header
    columns = ["bytes" if both and column.startswith("bytes") else column for column in COLUMNS]
    for column in columns:
        if table.header.count(column) != 1:
            found = ", ".join(table.header) or "nothing"
            raise UserError(f"expected one column '{column}', found: {found}", file=str(file))
    places = [table.header.index(column) for column in columns]
    with locating(file=str(file)):
        numbers_of = [table.numbers(place) for place in places]
    rows = []
    for line, cells in table.rows:
        rows.append([float(number(cells[place])) for number, place in zip(numbers_of, places, strict=True)])
        for column, place, number in zip(columns[1:], places[1:], rows[-1][1:], strict=True):
            if not 0 < number < math.inf:
                message = f"expected a number above 0, found '{cells[place]}'"
                raise UserError(message, file=f"{file}: line {line}", field=column)
    numbers = [row[0] for row in rows]
    if len(set(numbers)) < len(numbers):
        raise UserError("expected each round once: a file has the rounds of one client", file=str(file))
    if len(rows) < LEAST_ROUNDS:
        raise UserError(f"expected at least {LEAST_ROUNDS} rounds, found {len(rows)}", file=str(file))
    return ClientLog(*np.array(rows, np.float64).T[1:])


class Spread(NamedTuple):
    """The mean of values, the standard deviation of their logarithms, and how many outliers were left out."""

    mean: float
    sigma: float
    outliers: int


class Way(NamedTuple):
    """The link in one direction: median capacity, standard deviation of its logarithm, transfers that were left out."""

    bits_per_second: float
    sigma: float
    outliers: int


@dataclass(frozen=True)
class Calibration:
    """The fitted seconds of local training, and the link."""

    compute: Spread
    down: Way
    up: Way
    delay: float  # seconds before the first byte of a transfer
    round_seconds: float  # the median of a round's seconds


def calibrate(log: ClientLog, *, delay: float = 0.0, transport: Transport | None = None) -> Calibration:
    """Fit everything to a log.

    ``delay`` are the seconds before the first byte of a transfer; with TCP connections it is the one-way latency. The
    transport is a pure fluid by default.

    >>> ones = np.ones(4)
    >>> log = ClientLog(2.1 * ones, 3 * ones, 4.1 * ones, 1e6 * ones, 1e6 * ones)
    >>> found = calibrate(log, delay=0.1)
    >>> found.compute.mean, round(found.down.bits_per_second), round(found.up.bits_per_second)
    (3.0, 4000000, 2000000)
    """
    transport = transport or Transport()
    logarithms = np.log(log.compute_seconds)
    kept = _kept(logarithms)
    return Calibration(
        compute=Spread(float(log.compute_seconds[kept].mean()), _sigma(logarithms[kept]), int((~kept).sum())),
        down=_way(log.download_seconds, log.bytes_down, delay, transport),
        up=_way(log.upload_seconds, log.bytes_up, delay, transport),
        delay=delay,
        round_seconds=float(np.median(log.download_seconds + log.compute_seconds + log.upload_seconds)),
    )


def _way(seconds: Values, bytes: Values, delay: float, transport: Transport) -> Way:
    if delay >= (typical := np.median(seconds)):
        message = f"expected a delay shorter than the transfers ({typical:.3g} s, median), found {delay:.3g} s"
        raise UserError(message, field="--latency")
    if transport.tcp is None:
        # A transfer that took hardly longer than the delay says little about the capacity.
        capacities = np.log(8 * bytes / np.maximum(seconds - delay, 0.05 * seconds))
    else:
        capacities = np.log(_tcp_rates(transport, delay, bytes, seconds))
    kept = _kept(capacities)
    return Way(math.exp(capacities[kept].mean()), _sigma(capacities[kept]), int((~kept).sum()))


def _kept(logarithms: Values) -> NDArray[np.bool_]:
    """1.4826 times the median deviation estimates a normal standard deviation."""
    distances = np.abs(logarithms - np.median(logarithms))
    return np.asarray(distances <= max(OUTLYING * 1.4826 * float(np.median(distances)), LEAST_DISTANCE), np.bool_)


def _sigma(logarithms: Values) -> float:
    sigma = float(logarithms.std(ddof=1)) if len(logarithms) > 1 else 0.0
    return sigma if sigma >= STEADY else 0.0


def _tcp_rates(transport: Transport, latency: float, bytes: Values, seconds: Values) -> Values:
    """Payload bit/s of new, repeated connections, by bisection: a faster path never makes a transfer slower."""
    assert transport.tcp is not None
    if transport.tcp.keep_alive > 0.0:
        message = "expected keep_alive: 0, because the log does not state which transfers found an open connection"
        raise UserError(message, field="network.transport.keep_alive")
    opening = Opening(transport.tcp.round_trips(repeated=True))

    def taken(rates: Values) -> Values:
        paths = [transport.alone(latency, float(rate) / transport.efficiency, opening) for rate in rates]
        return np.array([path.seconds(float(size)) for path, size in zip(paths, bytes, strict=True)])

    least = taken(np.full(len(bytes), GREATEST_RATE))
    if np.median(seconds / least) <= 1.0:
        raise UserError(
            f"with this latency, a transfer over TCP takes at least {np.median(least):.3g} s; those of the log took "
            f"{np.median(seconds):.3g} s (medians)",
            field="--latency",
        )
    low, high = np.full(len(bytes), np.log(LEAST_RATE)), np.full(len(bytes), np.log(GREATEST_RATE))
    for _ in range(60):
        middle = (low + high) / 2
        slow = taken(np.exp(middle)) > seconds
        low, high = np.where(slow, middle, low), np.where(slow, high, middle)
    return np.asarray(np.exp(high), np.float64)


PERCENTS = (1, 5, 10, 25, 50, 75, 90, 95, 99)


@dataclass(frozen=True)
class Predicted:
    """The local training of the logged client in a round of a method, on the undisturbed device of a profile."""

    label: str
    samples: int
    steps: int
    seconds: float
    reading: float  # of the seconds, those in which training waits for data
    bytes_down: int  # of the whole model in a round
    bytes_up: int


def predicted(scenario: Scenario, label: str, profile: DeviceProfile, samples: int | None = None) -> Predicted:
    """The local training of a client with so many samples (the median of the scenario's clients if not given)."""
    if isinstance(scenario.cost, SecondsCost):
        raise UserError("expected kind: measured or paper, because 'seconds' needs no device", field="cost.kind")
    costs = step_costs(scenario, [scenario.method(label).label])[label]
    if samples is None:
        samples = int(np.median(shared_world(scenario, scenario.seeds[0], None).samples))
    counts = batch_counts(costs.method.local, samples)
    blocks = costs.adapted_model().depth
    steps = {size: costs.step(blocks, size, 0, profile.backend) for size in counts}
    local = local_seconds(profile, steps, counts, costs.method.local.input)
    if not local.training > 0:
        raise UserError(f"expected local training that takes time, found {samples} samples and no step")
    payload, codecs, layout = costs.method.payload, costs.method.codecs, costs.adapted_model().layout
    down = payload.downlink(encoded_sizes(codecs.down, layout), STEADY_ROUND, None, STEADY_ROUND - 2).parts
    sent = [sum(part.bytes for part in parts) for parts in (down, payload.uplink(encoded_sizes(codecs.up, layout)))]
    return Predicted(label, samples, sum(counts.values()), local.training, local.waiting, *sent)


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
    device = other.model_copy(update={"name": name, "compute": compute})
    data: dict[str, Any] = device.model_dump(mode="json", exclude_none=True)
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
