"""A scenario times methods times seeds: wires the world and writes the run directory."""

from edgefl.experiment.directory import is_interrupted, is_unbegun
from edgefl.experiment.faults import NotWritten, RunsFailed
from edgefl.experiment.replay import Replay, replay
from edgefl.experiment.run import resume, run
from edgefl.experiment.verify import verify

__all__ = ["NotWritten", "Replay", "RunsFailed", "is_interrupted", "is_unbegun", "replay", "resume", "run", "verify"]
