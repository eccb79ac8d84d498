"""Capacities that are drawn uniformly, once, every few rounds, or every few seconds."""

import math
from functools import lru_cache
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from edgefl.network.capacities.base import (
    CAPACITIES,
    Capacities,
    CapacityProcess,
    CapacitySpec,
    LinkDirection,
    SteppedProcess,
)
from edgefl.randomness import generator
from edgefl.units import BitsPerSecond


@CAPACITIES.register("uniform")
class UniformCapacity(CapacitySpec):
    """Drawn for each client uniformly from ``[low, high)``; redrawn as set by the link's ``redraw``."""

    drawn = True

    kind: Literal["uniform"] = Field("uniform", description="Each client's capacity is drawn from U(low, high).")
    low: BitsPerSecond = Field(description="Lowest capacity.")
    high: BitsPerSecond = Field(description="Highest capacity.")

    @model_validator(mode="after")
    def _low_before_high(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"expected low at most high, found low {self.low:g} and high {self.high:g} bit/s")
        return self

    def start(self, direction: LinkDirection) -> Capacities:
        return _Uniform(self, direction)

    def scaled(self, factor: float) -> Self:
        return self.model_copy(update={"low": self.low * factor, "high": self.high * factor})


class _Uniform(Capacities):
    """One keyed vector stream per (seed, link, direction, epoch) gives all clients' capacities at once."""

    def __init__(self, spec: UniformCapacity, direction: LinkDirection) -> None:
        self._spec, self._direction = spec, direction
        self._rule = direction.redraw or ("rounds", math.inf)
        self._redrawn = lru_cache(1)(self._drawn)

    def usual(self, clients: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.full(len(clients), (self._spec.low + self._spec.high) / 2)

    def highest(self, clients: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.full(len(clients), self._spec.high)

    def at(self, round: int, clients: NDArray[np.int64]) -> NDArray[np.float64] | None:
        unit, every = self._rule
        return None if unit == "seconds" else self._drawn(int(round // every))[clients]

    def changes_at(self, round: int) -> bool:
        unit, every = self._rule
        return unit == "rounds" and round % every == 0

    def process(self, client: int) -> CapacityProcess:
        return SteppedProcess(self._rule[1], self._redrawn, client)

    def _drawn(self, epoch: int) -> NDArray[np.float64]:
        link, spec = self._direction, self._spec
        key = "down" if link.symmetric else link.direction
        draws = generator(link.seed, "link", link.name, key, epoch).random(link.clients)
        return spec.low + (spec.high - spec.low) * draws
