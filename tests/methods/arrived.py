"""Arrivals of a synchronous round, for tests of server updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from edgefl.methods.parts.server import Arrival, Arrivals


def arrived(
    deltas: Tensor,
    weights: Tensor | None = None,
    *,
    lr: float = 0.1,
    steps: Sequence[int] | None = None,
    losses: Sequence[float] | None = None,
    received: Mapping[str, Tensor] | None = None,
) -> Arrivals:
    """Updates of clients 0, 1, … that all were sent the latest version; with equal weights by default."""
    count = len(deltas)
    shares = [1 / count] * count if weights is None else weights.tolist()
    each = [
        Arrival(
            client=client,
            rate=lr,
            steps=4 if steps is None else steps[client],
            weight=shares[client],
            loss=1.0 if losses is None else losses[client],
            received=received or {},
        )
        for client in range(count)
    ]
    return Arrivals(each, deltas, deltas)
