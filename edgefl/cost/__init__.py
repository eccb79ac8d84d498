"""The operators, memory traffic and storage of a local step, measured on the method's real graph."""

from edgefl.cost.law import CostModel
from edgefl.cost.measure import Operator, StepCost, measure
from edgefl.models.data_dependence import DataDependentError

__all__ = ["CostModel", "DataDependentError", "Operator", "StepCost", "measure"]
