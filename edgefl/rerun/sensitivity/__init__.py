"""Check whether the best method of a finished run stays the best on slower or faster devices and links."""

from edgefl.record.sensitivity import Condition
from edgefl.rerun.sensitivity.conditions import CONDITIONS
from edgefl.rerun.sensitivity.retiming import write_sensitivity

__all__ = ["CONDITIONS", "Condition", "write_sensitivity"]
