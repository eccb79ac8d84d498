"""Engine ``batched``: many jobs in one computation, for accelerators."""

from edgefl.training.base import ENGINES, EngineEntry, EngineInputs
from edgefl.training.batched.engine import BatchedEngine


def build(given: EngineInputs) -> BatchedEngine:
    """The engine."""
    convolutions = given.options["convolutions"]
    return BatchedEngine(given.model, given.data, given.device, precision=given.precision, convolutions=convolutions)


ENGINES.register("batched")(EngineEntry(build, options=("convolutions",), alike=False))
