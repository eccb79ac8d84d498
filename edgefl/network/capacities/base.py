"""The interface of kinds of capacity, and capacities that are piecewise-constant functions of virtual time."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from edgefl.errors import WrongAnswer
from edgefl.options import Options
from edgefl.registry import Registry
from edgefl.step_trace import StepTrace


class CapacityProcess(Protocol):
    """A capacity over time. It is evaluated at each change of a busy link, and never for an idle link."""

    def value(self, seconds: float) -> float:
        """The capacity at this time, bit/s (the new one at a change: the function is right-continuous)."""

    def next_change(self, seconds: float) -> float:
        """The first moment after ``seconds`` at which the capacity may change; infinite if it never does."""


@dataclass(frozen=True, slots=True)
class SteppedProcess:
    """A client's row of capacities ``at_step`` (from 0, of all clients, bit/s), of ``step`` seconds each."""

    step: float
    at_step: Callable[[int], NDArray[np.float64]]
    client: int

    def value(self, seconds: float) -> float:
        return float(self.at_step(self._number(seconds))[self.client])

    def next_change(self, seconds: float) -> float:
        """The end of the present step, or of all steps shorter than the resolution of a float at that time."""
        return max((self._number(seconds) + 1) * self.step, math.nextafter(seconds, math.inf))

    def _number(self, seconds: float) -> int:
        number = int(seconds / self.step)
        # Steps begin at the rounded value of number * step; the quotient may be off by one.
        return number + ((number + 1) * self.step <= seconds) - (number * self.step > seconds)


Direction = Literal["down", "up"]

DIRECTIONS: tuple[Direction, Direction] = ("down", "up")


class LinkDirection(NamedTuple):
    """One direction of a named link in one run, which the clients of some groups have."""

    name: str  # of the link
    direction: Direction
    # of the whole fleet: draws cover all of them, so a client's do not depend on which others have this link
    clients: int
    seed: int
    redraw: tuple[Literal["rounds", "seconds"], float] | None  # how often drawn capacities are redrawn
    symmetric: bool  # one draw is for both directions
    other: CapacitySpec  # of the other direction
    folder: Path | None = None  # where files that are not found as they are named are searched


class Capacities(ABC):
    """All clients' capacities in a direction, bit/s: those of :meth:`at` in each round, or a :meth:`process`."""

    traces: Mapping[str, StepTrace] = {}
    """The recorded traces that clients follow, by name."""

    @abstractmethod
    def usual(self, clients: NDArray[np.int64]) -> NDArray[np.float64]:
        """The usual capacity of each of these clients: a mean or a median."""

    @abstractmethod
    def highest(self, clients: NDArray[np.int64]) -> NDArray[np.float64]:
        """The highest capacity that each of these clients can have."""

    def at(self, round: int, clients: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """The capacities of these clients during a round (from 0); None if they follow a process."""
        return None

    def changes_at(self, round: int) -> bool:
        """True if :meth:`at` may differ between this round, from 1, and the one before it."""
        return False

    def process(self, client: int) -> CapacityProcess:
        """The process that this client's capacity follows; asked if :meth:`at` returns None."""
        raise WrongAnswer(f"{type(self).__name__}.at returned None, and it defines no process(client)")


class CapacitySpec(Options):
    """A kind of capacity as a scenario describes it; its fields are the options."""

    drawn: ClassVar[bool] = False
    """True if it is drawn at random, so that a link's ``redraw`` and ``symmetric`` apply to it."""

    kind: str = Field(default="python", description="the kind of capacity")

    @abstractmethod
    def start(self, direction: LinkDirection) -> Capacities:
        """The capacities of a run; they depend on the arguments only, so that all methods have the same network."""

    @abstractmethod
    def scaled(self, factor: float) -> Self:
        """The same capacity, with every rate multiplied by ``factor``, and with the same draws."""


CAPACITIES: Registry[type[CapacitySpec]] = Registry(
    "capacity", package="edgefl.network.capacities", group="edgefl.capacities", base=CapacitySpec
)
"""Every kind of capacity by name; ``edgefl.capacities`` entry points add to it."""
