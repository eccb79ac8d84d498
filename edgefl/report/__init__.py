"""Tables, pictures and sentences about a finished run, made from its run directory only."""

from edgefl.report.comparison import as_csv, as_html, as_latex, as_markdown, comparison_table
from edgefl.report.pictures import write_pictures
from edgefl.report.rows import Row, comparison_rows, none_completed_a_round
from edgefl.report.run_result import RunResult
from edgefl.report.verdict import verdict

__all__ = [
    "Row",
    "RunResult",
    "as_csv",
    "as_html",
    "as_latex",
    "as_markdown",
    "comparison_rows",
    "comparison_table",
    "none_completed_a_round",
    "verdict",
    "write_pictures",
]
