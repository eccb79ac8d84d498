"""Tables, pictures and sentences about a finished run, made from its run directory only."""

from edgefl.report.comparison import comparison
from edgefl.report.glance import verdict
from edgefl.report.pictures import write_pictures
from edgefl.report.rows import comparison_rows, none_completed_a_round
from edgefl.report.shown_run import RunResult

__all__ = ["RunResult", "comparison", "comparison_rows", "none_completed_a_round", "verdict", "write_pictures"]
