"""Engine ``parallel``: jobs on the cores of a CPU."""

from edgefl.training.base import ENGINES, EngineEntry, EngineInputs
from edgefl.training.parallel.engine import ParallelEngine
from edgefl.training.processors import cores


def build(given: EngineInputs) -> ParallelEngine:
    """The engine."""
    return ParallelEngine(given.model, given.data, given.workers or cores(), given.precision)


ENGINES.register("parallel")(EngineEntry(build, devices=("cpu",)))
