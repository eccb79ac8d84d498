"""Estimate what a scenario costs without training: ``edgefl plan``."""

from edgefl.planning.figures import BudgetPlan, DevicePlan, MethodPlan, Plan, Range
from edgefl.planning.planning import plan, planned_rounds

__all__ = ["BudgetPlan", "DevicePlan", "MethodPlan", "Plan", "Range", "plan", "planned_rounds"]
