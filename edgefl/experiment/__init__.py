"""A scenario times methods times seeds: wires the world and writes the run directory."""

from edgefl.experiment.run import run
from edgefl.experiment.verify import verify

__all__ = ["run", "verify"]
