"""Engine ``sequential``: one job after another, in the calling thread."""

from edgefl.training.base import ENGINES, EngineEntry, EngineInputs
from edgefl.training.sequential import SequentialEngine


def build(given: EngineInputs) -> SequentialEngine:
    """The engine."""
    return SequentialEngine(given.model, given.data, given.device, given.precision)


ENGINES.register("sequential")(EngineEntry(build))
