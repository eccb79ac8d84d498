"""Synchronous rounds, with secure aggregation or without."""

from typing import Literal

from pydantic import Field

from edgefl.simulation.protocols.base import PROTOCOLS, Course, RoundsSpec
from edgefl.simulation.protocols.secure import SecureRounds
from edgefl.simulation.protocols.synchronous_course import Synchronous
from edgefl.simulation.rounds import RoundBook
from edgefl.simulation.world import World


@PROTOCOLS.register("synchronous")
class SynchronousSpec(RoundsSpec):
    """One round after another.

    A synchronous round ends when every picked client has returned or dropped out; with a deadline, not later than the
    deadline; with over-selection, as soon as ``cohort`` clients have returned.

    >>> SynchronousSpec(over_select=1.3).picked(cohort=10)
    13
    """

    kind: Literal["synchronous"] = Field(default="synchronous", description="synchronous: one round after another")

    def course(self, world: World, book: RoundBook) -> Course:
        return (Synchronous if world.setup.secure is None else SecureRounds)(world, book, self)
