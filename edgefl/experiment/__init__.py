"""Run a scenario for all methods and seeds: set up the world and write the run directory."""

from edgefl.experiment.directory import look_free
from edgefl.experiment.run import NotWritten, RunsFailed, go_on, resume, run
from edgefl.record.paths import is_interrupted

__all__ = ["NotWritten", "RunsFailed", "go_on", "is_interrupted", "look_free", "resume", "run"]
