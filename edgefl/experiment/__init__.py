"""A scenario times methods times seeds: wires the world and writes the run directory."""

from edgefl.experiment.directory import is_interrupted
from edgefl.experiment.run import resume, run
from edgefl.experiment.verify import verify

__all__ = ["is_interrupted", "resume", "run", "verify"]
