"""The interface of protocols: how rounds run, which updates they aggregate, and the weight of stale ones."""

import math
from abc import abstractmethod
from collections.abc import Generator
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self

import simpy
from pydantic import Field, model_validator

from edgefl.methods.fits import Need
from edgefl.methods.parts.server import Weighting
from edgefl.options import Options
from edgefl.registry import OneOf, Registry
from edgefl.simulation.protocols.deadlines import DeadlineSpec


class Course(Protocol):
    """The course of a run: that of a protocol, or of a Flower app."""

    def run(self) -> Generator[simpy.Event, object, None]:
        """The whole run, as a SimPy process."""

    def break_off(self) -> None:
        """The run ends: abort everything in progress."""


class ProtocolSpec(Options, allow_inf_nan=False):
    """A protocol as a scenario describes it; its fields are the options."""

    needs: ClassVar[frozenset[Need]] = frozenset()
    has_rounds: ClassVar[bool] = True
    """True if a cohort is picked once the round before it has ended."""
    own_models: ClassVar[bool] = False
    """True if each client has a model of its own."""
    averages_in_cells: ClassVar[bool] = False
    """True if a client's update ends at its cell, which sends the mean of its clients' updates to the server."""

    kind: str = Field(default="python", description="how rounds run")
    retries: int = Field(0, ge=0, description="restarts of a job after an accident (`fleet.dropout`)")

    @abstractmethod
    def course(self, world: Any, book: Any) -> Course:
        """The course of a run in a :class:`~edgefl.simulation.world.World`, whose rounds a ``RoundBook`` closes."""

    @abstractmethod
    def takes(self, weighting: Weighting = "uniform") -> dict[Need, str]:
        """What it takes from parts of a scenario, with the reasons; ``weighting`` is the method's."""

    def accept(self, clients: int, seed: int) -> Any:
        """Check that so many clients can run it."""

    def pairs(self, clients: int, seed: int) -> list[tuple[int, int]] | None:
        """The clients that send to each other; None if all transfers are between a client and the server or a cell."""
        return None

    @abstractmethod
    def under_way(self, cohort: int) -> int:
        """The most clients that take part at one time."""

    @abstractmethod
    def by_arrival(self) -> str | None:
        """The option by which arrival times decide which updates are aggregated; None if they do not."""

    def gathered(self, cohort: int) -> int:
        """K: the number of updates for one aggregation."""
        return cohort

    @property
    def under_way_by(self) -> str:
        """The field of a scenario that sets :meth:`under_way`."""
        return "training.cohort"

    @property
    def gathered_by(self) -> str:
        """The field of a scenario that sets :meth:`gathered`."""
        return "training.cohort"


PROTOCOLS: Registry[type[ProtocolSpec]] = Registry(
    "protocol", package="edgefl.simulation.protocols", group="edgefl.protocols", base=ProtocolSpec
)
"""Every protocol by name; ``edgefl.protocols`` entry points add to it."""

AnyProtocol = Annotated[ProtocolSpec, OneOf(PROTOCOLS, default="synchronous")]
"""``protocol:`` of a scenario; without a kind, a synchronous one."""


class RoundsSpec(ProtocolSpec):
    """The common options of protocols with rounds: when a round closes, and how late clients are handled."""

    deadline: DeadlineSpec | None = Field(None, description="of a round or averaging cell; mapping: by earlier rounds")
    over_select: float = Field(1.0, ge=1, description="pick this multiple of the cohort; close when a cohort is back")
    late: Literal["drop", "partial"] = Field(
        "drop", description="drop late updates, or take only steps that leave time"
    )
    reserve: float = Field(1.0, ge=0, description="partial only: seconds for the upload, in multiples of its own")

    @model_validator(mode="after")
    def _partial_needs_a_deadline(self) -> Self:
        if self.late == "partial" and self.deadline is None:
            raise ValueError("late 'partial' reduces work to meet a deadline; expected a deadline, found null")
        return self

    def takes(self, weighting: Weighting = "uniform") -> dict[Need, str]:
        return {} if self.deadline is not None else {"deadline": "there is none; expected protocol.deadline"}

    def under_way(self, cohort: int) -> int:
        return self.picked(cohort)

    @property
    def under_way_by(self) -> str:
        return "protocol.over_select"

    def by_arrival(self) -> str | None:
        return "deadline" if self.deadline is not None else "over_select" if self.picked(100) > 100 else None

    def picked(self, cohort: int) -> int:
        """The number of clients to pick so that ``cohort`` of them close the round."""
        # 1.1 * 10 is 11.000000000000002: without the rounding it would pick 12.
        return math.ceil(round(self.over_select * cohort, 9))

    def enough(self, picked: int) -> int:
        """The number of the clients picked in a cell that must return to close it."""
        return math.ceil(round(picked / self.over_select, 9))
