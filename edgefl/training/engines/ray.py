"""Engine ``ray``: jobs on the machines of a Ray cluster."""

from edgefl.training.base import ENGINES, EngineEntry, EngineInputs
from edgefl.training.ray.engine import RayEngine


def build(given: EngineInputs) -> RayEngine:
    """The engine."""
    return RayEngine(given.model, given.data, given.device, given.precision)


ENGINES.register("ray")(EngineEntry(build, elsewhere=True))
