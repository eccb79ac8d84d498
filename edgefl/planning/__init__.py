"""What a scenario will cost, before anything is trained: ``edgefl plan``."""

from edgefl.planning.figures import BudgetPlan, DevicePlan, MethodPlan, Plan, Range
from edgefl.planning.planning import plan, planned_rounds

__all__ = ["BudgetPlan", "DevicePlan", "MethodPlan", "Plan", "Range", "plan", "planned_rounds"]
