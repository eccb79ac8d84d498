"""Run a scenario with many settings: jobs in local processes, and one table of results."""

from edgefl.sweep.choice import Chosen, choose
from edgefl.sweep.halving import halving
from edgefl.sweep.jobs import Job, jobs_of
from edgefl.sweep.proposals import proposals
from edgefl.sweep.settings import Setting, parse_grid, settings_of
from edgefl.sweep.sweeping import SweepResult, search, sweep
from edgefl.sweep.table import sweep_table

__all__ = [
    "Chosen",
    "Job",
    "Setting",
    "SweepResult",
    "choose",
    "halving",
    "jobs_of",
    "parse_grid",
    "proposals",
    "search",
    "settings_of",
    "sweep",
    "sweep_table",
]
