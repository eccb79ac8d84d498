"""A capacity that never changes."""

from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from edgefl.network.capacities.base import CAPACITIES, Capacities, CapacitySpec, LinkDirection
from edgefl.units import BitsPerSecond


@CAPACITIES.register("constant")
class ConstantCapacity(CapacitySpec):
    """The same for all clients at all times; a plain quantity means this."""

    kind: Literal["constant"] = Field("constant", description="A capacity that never changes.")
    rate: BitsPerSecond = Field(description="The capacity of each client's link.")

    def start(self, direction: LinkDirection) -> Capacities:
        return _Constant(self.rate)

    def scaled(self, factor: float) -> Self:
        return self.model_copy(update={"rate": self.rate * factor})


class _Constant(Capacities):
    def __init__(self, rate: float) -> None:
        self._rate = rate

    def usual(self, clients: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.full(len(clients), self._rate)

    highest = usual

    def at(self, round: int, clients: NDArray[np.int64]) -> NDArray[np.float64]:
        return self.usual(clients)
