"""Whether a finished run's winner stays the winner on slower or faster devices and links."""

from edgefl.experiment.sensitivity.conditions import CONDITIONS
from edgefl.experiment.sensitivity.retiming import write_sensitivity
from edgefl.record.sensitivity import Condition

__all__ = ["CONDITIONS", "Condition", "write_sensitivity"]
