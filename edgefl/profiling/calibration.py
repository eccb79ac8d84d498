"""Fit the pace of a device and the capacities of its link to the measured rounds of one client.

A round's computation takes ``c exp(σ z - σ²/2)`` seconds, as in :mod:`edgefl.fleet.slowdown`. A transfer of B bytes
takes ``l + 8 B / (r exp(σ z))`` seconds: l is the delay before the first byte, r the median capacity; z is a standard
normal number of each round. Outliers are left out: values whose logarithm is far from the others'.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import UserError
from edgefl.network.transport import Transport
from edgefl.profiling.client_log import ClientLog
from edgefl.profiling.tcp_rates import tcp_rates

Values = NDArray[np.float64]

FLUID = Transport()

OUTLYING = 5.0
"""Robust standard deviations from the median beyond which a logarithm is an outlier."""

LEAST_DISTANCE = math.log(1.3)
"""No value within 30 % of the median is an outlier."""

SIZES_DIFFER = 1.5
"""The delay before the first byte can be fitted if the largest transfer in a direction is so much larger than the
smallest."""

NO_DELAY = 1e-3
"""A smaller share of the shortest transfer counts as no delay."""

STEADY = 0.005
"""A smaller standard deviation of logarithms counts as none."""


@dataclass(frozen=True)
class Spread:
    """Values that vary from round to round.

    Attributes:
        mean: the arithmetic mean.
        sigma: the standard deviation of the logarithm.
        outliers: how many values were left out.
    """

    mean: float
    sigma: float
    outliers: int


@dataclass(frozen=True)
class Way:
    """The fitted link in one direction.

    Attributes:
        bits_per_second: the median capacity.
        sigma: the standard deviation of its logarithm.
        outliers: how many transfers were left out.
    """

    bits_per_second: float
    sigma: float
    outliers: int


@dataclass(frozen=True)
class Calibration:
    """What was fitted.

    Attributes:
        compute: the seconds of local training.
        down, up: the link.
        delay: seconds before the first byte of a transfer.
        delay_error: its standard error if it was fitted; ``None`` if it was given.
        round_seconds: the median of a round's seconds.
    """

    compute: Spread
    down: Way
    up: Way
    delay: float
    delay_error: float | None
    round_seconds: float


def calibrate(log: ClientLog, *, delay: float | None = None, transport: Transport = FLUID) -> Calibration:
    """Fit everything to a log.

    Args:
        log: the log.
        delay: seconds before the first byte of a transfer; fitted if not given and the sizes of the transfers differ,
            else 0. With TCP connections it is the one-way latency and must be given.
        transport: how transfers use the link.

    Raises:
        UserError: the delay is not shorter than the transfers, or TCP is slower than they were.

    >>> ones = np.ones(4)
    >>> log = ClientLog(2.1 * ones, 3 * ones, 4.1 * ones, 1e6 * ones, 1e6 * ones)
    >>> found = calibrate(log, delay=0.1)
    >>> found.compute.mean, round(found.down.bits_per_second), round(found.up.bits_per_second)
    (3.0, 4000000, 2000000)
    """
    error: float | None = None
    if delay is None:
        delay = 0.0
        if _differ(log.bytes_down) or _differ(log.bytes_up):
            delay, error = _fitted_delay(log)
    return Calibration(
        compute=_spread(log.compute_seconds),
        down=_way(log.download_seconds, log.bytes_down, delay, transport),
        up=_way(log.upload_seconds, log.bytes_up, delay, transport),
        delay=delay,
        delay_error=error,
        round_seconds=float(np.median(log.download_seconds + log.compute_seconds + log.upload_seconds)),
    )


def _spread(seconds: Values) -> Spread:
    logarithms = np.log(seconds)
    kept = _kept(logarithms)
    return Spread(float(seconds[kept].mean()), _sigma(logarithms[kept]), int((~kept).sum()))


def _way(seconds: Values, bytes: Values, delay: float, transport: Transport) -> Way:
    if delay >= (typical := np.median(seconds)):
        message = f"expected a delay shorter than the transfers ({typical:.3g} s, median), found {delay:.3g} s"
        raise UserError(message, field="--latency")
    if transport.tcp is None:
        # A transfer that took hardly longer than the delay says little about the capacity.
        capacities = np.log(8 * bytes / np.maximum(seconds - delay, 0.05 * seconds))
    else:
        capacities = np.log(tcp_rates(transport, delay, bytes, seconds))
    kept = _kept(capacities)
    return Way(math.exp(capacities[kept].mean()), _sigma(capacities[kept]), int((~kept).sum()))


def _fitted_delay(log: ClientLog) -> tuple[float, float]:
    """The delay that both directions share, by robust least squares of the seconds' logarithms; its standard error."""
    from scipy.optimize import least_squares

    shortest = float(min(log.download_seconds.min(), log.upload_seconds.min()))
    ways = ((log.download_seconds, log.bytes_down), (log.upload_seconds, log.bytes_up))

    def misses(x: Values) -> Values:
        parts = [
            np.log(x[2] * shortest + 8 * bytes / math.exp(rate)) - np.log(seconds)
            for rate, (seconds, bytes) in zip(x[:2], ways, strict=True)
        ]
        return np.concatenate(parts)

    rates = [float(np.median(np.log(8 * bytes / seconds))) for seconds, bytes in ways]
    bounds = ([0.0, 0.0, 0.0], [60.0, 60.0, 0.99])
    fits = [
        least_squares(misses, [*rates, share], bounds=bounds, loss="soft_l1", f_scale=0.1) for share in (0.1, 0.5, 0.9)
    ]
    best = min(fits, key=lambda fit: float(fit.cost))
    share = float(best.x[2])
    variance = 2 * float(best.cost) / max(2 * log.rounds - 3, 1)
    jacobian = np.asarray(best.jac, np.float64)
    error = math.sqrt(variance * float(np.linalg.pinv(jacobian.T @ jacobian)[2, 2]))
    return (share if share > NO_DELAY else 0.0) * shortest, error * shortest


def _differ(bytes: Values) -> bool:
    return bool(bytes.max() >= SIZES_DIFFER * bytes.min())


def _kept(logarithms: Values) -> NDArray[np.bool_]:
    """Which values are no outliers; 1.4826 times the median deviation estimates a normal standard deviation."""
    distances = np.abs(logarithms - np.median(logarithms))
    return np.asarray(distances <= max(OUTLYING * 1.4826 * float(np.median(distances)), LEAST_DISTANCE), np.bool_)


def _sigma(logarithms: Values) -> float:
    sigma = float(logarithms.std(ddof=1)) if len(logarithms) > 1 else 0.0
    return sigma if sigma >= STEADY else 0.0
