"""Compare schedulers over the same rounds of a world, without training: ``edgefl schedule``."""

from edgefl.planning.arena.arena import schedule
from edgefl.planning.arena.figures import Arena, SchedulerFigures

__all__ = ["Arena", "SchedulerFigures", "schedule"]
