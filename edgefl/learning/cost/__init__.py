"""The operators, memory traffic and storage of a local step, measured on the method's real graph."""

from edgefl.learning.cost.law import CostModel
from edgefl.learning.cost.measure import Operator, StepCost, measure
from edgefl.learning.cost.recorder import DataDependentError

__all__ = ["CostModel", "DataDependentError", "Operator", "StepCost", "measure"]
