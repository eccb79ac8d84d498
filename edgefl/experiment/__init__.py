"""Run a scenario for all methods and seeds: set up the world and write the run directory."""

from edgefl.experiment.directory import is_interrupted, look_free
from edgefl.experiment.faults import NotWritten, RunMoved, RunsFailed
from edgefl.experiment.replay import Replay, replay
from edgefl.experiment.run import resume, run
from edgefl.experiment.verify import verify

__all__ = [
    "NotWritten",
    "Replay",
    "RunMoved",
    "RunsFailed",
    "is_interrupted",
    "look_free",
    "replay",
    "resume",
    "run",
    "verify",
]
