"""edgefl: compare federated-learning methods in simulation, on given devices, networks and budgets.

>>> import edgefl
>>> edgefl.load_scenario("5g_100clients", ["training.rounds=20"]).training.rounds
20
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from edgefl.version import __version__

if TYPE_CHECKING:
    from edgefl.api import open_run, plan, price_steps, replay, run_sweep, schedule, simulate, timeline
    from edgefl.errors import UserError
    from edgefl.experiment import RunsFailed
    from edgefl.record.events import Listener
    from edgefl.report import RunResult
    from edgefl.scenario import Scenario, load_scenario

__all__ = [
    "Listener", "RunResult", "RunsFailed", "Scenario", "UserError", "__version__", "load_scenario", "open_run", "plan",
    "price_steps", "replay", "run_sweep", "schedule", "simulate", "timeline",
]  # fmt: skip

_HOME = {
    "Listener": "edgefl.record.events",
    "RunResult": "edgefl.report",
    "RunsFailed": "edgefl.experiment",
    "Scenario": "edgefl.scenario",
    "UserError": "edgefl.errors",
    "load_scenario": "edgefl.scenario",
    **dict.fromkeys(__all__[7:], "edgefl.api"),
}
"""The module of each public name. It is imported at the first use, because importing torch takes a second."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'edgefl' has no attribute '{name}'")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
