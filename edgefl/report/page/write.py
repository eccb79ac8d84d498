"""Builds the page from its template, sections, style, script and data."""

from collections.abc import Sequence
from pathlib import Path

from edgefl.errors import UserError
from edgefl.record.paths import write_output
from edgefl.report.html import render
from edgefl.report.page.robustness import Timed, timed
from edgefl.report.page.sections import facts, sections, subtitle
from edgefl.report.page.series import series_of, slider_data
from edgefl.report.rows import run_names
from edgefl.report.run_result import RunResult


def page(runs: Sequence[RunResult], timings: Sequence[Timed] | None = None) -> str:
    """The page as text; ``timings``: each run under other conditions, by default read from its directory."""
    timings = [timed(run) for run in runs] if timings is None else timings
    series = series_of(runs)
    return render(
        "page.html.jinja",
        title=" | ".join(run_names(runs)),
        subtitle=subtitle(runs),
        facts=facts(runs),
        version=", ".join(sorted({str(run.summary["edgefl"]) for run in runs})),
        contents=sections(runs, series, timings),
        data=slider_data(runs, series),
    )


def writepage(runs: Sequence[RunResult], path: Path) -> list[str]:
    """Write the page to a file, and return the errors of damaged files that it omits."""
    timings = [timed(run) for run in runs]
    write_output(path, page(runs, timings))
    return [str(found) for found in timings if isinstance(found, UserError)]
