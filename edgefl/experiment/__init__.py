"""A scenario times methods times seeds: wires the world and writes the run directory."""

from edgefl.experiment.run import resume, run
from edgefl.experiment.verify import verify

__all__ = ["resume", "run", "verify"]
