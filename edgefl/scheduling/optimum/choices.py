"""What a round may choose from: clients with known costs, and the server's two links."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Choices:
    """The possible participations of one round; arrays have one entry for each choice.

    A client has one choice, or several, for example one for each number of blocks or each width; at most one of them is
    taken. A taken choice downloads, then spends ``between``, then uploads. Its rate never exceeds its own limit, and
    the rates of all downloads (uploads) together never exceed the server's capacity. Rates may change at any time.

    Attributes:
        client: whose choice it is.
        down_bits, up_bits: what is transferred.
        down_rate, up_rate: the highest rates, bit/s; 0 if the link is down.
        start: seconds from the beginning of the round until the download may begin.
        between: seconds from the end of the download until the upload may begin: computing, and latency.
        utility: what the choice contributes to the required utility, above 0: 1 to count clients, or its samples.
        joules: of the participation.
        server_down, server_up: capacity of the server's link in each direction, bit/s; infinite if it is no limit.
    """

    client: NDArray[np.int64]
    down_bits: Numbers
    down_rate: Numbers
    start: Numbers
    between: Numbers
    up_bits: Numbers
    up_rate: Numbers
    utility: Numbers
    joules: Numbers
    server_down: float = math.inf
    server_up: float = math.inf

    @property
    def down_seconds(self) -> Numbers:
        """The download's seconds if no other client transfers."""
        return _seconds(self.down_bits, np.minimum(self.down_rate, self.server_down))

    @property
    def up_seconds(self) -> Numbers:
        """The upload's seconds if no other client transfers."""
        return _seconds(self.up_bits, np.minimum(self.up_rate, self.server_up))

    @property
    def alone(self) -> Numbers:
        """The seconds of the whole participation if no other client transfers; infinite where a link is down."""
        return self.start + self.down_seconds + self.between + self.up_seconds

    def only(self, kept: NDArray[np.bool_]) -> Choices:
        """The choices for which ``kept`` is True."""
        return Choices(
            self.client[kept],
            self.down_bits[kept],
            self.down_rate[kept],
            self.start[kept],
            self.between[kept],
            self.up_bits[kept],
            self.up_rate[kept],
            self.utility[kept],
            self.joules[kept],
            self.server_down,
            self.server_up,
        )

    def most_utility(self) -> float:
        """The sum of each client's largest utility."""
        best: dict[int, float] = {}
        for client, utility in zip(self.client.tolist(), self.utility.tolist(), strict=True):
            best[client] = max(best.get(client, 0.0), utility)
        return math.fsum(best.values())


def _seconds(bits: Numbers, rate: Numbers) -> Numbers:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(bits > 0, bits / rate, 0.0)
