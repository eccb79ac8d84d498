"""The rate that a path must offer for a TCP transfer to take the measured seconds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import UserError
from edgefl.network.tcp import Opening
from edgefl.network.transport import Transport

LEAST, GREATEST = 1.0, 1e15
"""Bits per second between which the rate is looked for."""


def tcp_rates(
    transport: Transport, latency: float, bytes: NDArray[np.float64], seconds: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The payload rate (bit/s) of each transfer, by bisection: a faster path never makes a transfer slower.

    Each transfer is assumed to open a connection, and not the first one between its nodes.

    Args:
        transport: has the connections (``tcp``).
        latency: one-way latency of the path, seconds.
        bytes: the payload of each transfer.
        seconds: from its first byte to its last, set-up and latency included.

    Raises:
        UserError: connections are kept open, or half of the transfers were faster than TCP is at any rate.
    """
    tcp = transport.tcp
    if tcp is None:
        raise ValueError("expected a transport with tcp")
    if tcp.keep_alive > 0.0:
        raise UserError(
            "expected keep_alive: 0, because the log does not state which transfers found an open connection",
            field="network.transport.keep_alive",
        )
    opening = Opening(tcp.round_trips(repeated=True))

    def taken(rates: NDArray[np.float64]) -> NDArray[np.float64]:
        paths = [transport.alone(latency, float(rate) / transport.efficiency, opening) for rate in rates]
        return np.array([path.seconds(float(size)) for path, size in zip(paths, bytes, strict=True)])

    least = taken(np.full(len(bytes), GREATEST))
    if np.median(seconds / least) <= 1.0:
        raise UserError(
            f"with this latency, a transfer over TCP takes at least {np.median(least):.3g} s; those of the log took "
            f"{np.median(seconds):.3g} s (medians)",
            field="--latency",
        )
    low, high = np.full(len(bytes), np.log(LEAST)), np.full(len(bytes), np.log(GREATEST))
    for _ in range(60):
        middle = (low + high) / 2
        slow = taken(np.exp(middle)) > seconds
        low, high = np.where(slow, middle, low), np.where(slow, high, middle)
    return np.asarray(np.exp(high), np.float64)
