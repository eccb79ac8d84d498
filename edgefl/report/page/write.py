"""Builds the page from its template, sections, style, script and data."""

from collections.abc import Sequence
from pathlib import Path

from edgefl.record.paths import write_output
from edgefl.report.html import render
from edgefl.report.page.sections import facts, sections, subtitle
from edgefl.report.page.series import series_of, slider_data
from edgefl.report.rows import run_names
from edgefl.report.run_result import RunResult


def page(runs: Sequence[RunResult]) -> str:
    """The page as text."""
    series = series_of(runs)
    return render(
        "page.html.jinja",
        title=" | ".join(run_names(runs)),
        subtitle=subtitle(runs),
        facts=facts(runs),
        version=", ".join(sorted({str(run.summary["edgefl"]) for run in runs})),
        contents=sections(runs, series),
        data=slider_data(runs, series),
    )


def write_page(runs: Sequence[RunResult], path: Path) -> None:
    """Write the page to a file."""
    write_output(path, page(runs))
