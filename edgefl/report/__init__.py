"""Tables, pictures and sentences about a finished run, made from its run directory only."""

from edgefl.report.comparison import comparison
from edgefl.report.glance import glance, verdict
from edgefl.report.pictures import write_pictures
from edgefl.report.rows import Row, comparison_rows, none_completed_a_round
from edgefl.report.run_result import RunResult
from edgefl.report.table import Table

__all__ = [
    "Row", "RunResult", "Table", "comparison", "comparison_rows", "glance", "none_completed_a_round", "verdict",
    "write_pictures",
]  # fmt: skip
