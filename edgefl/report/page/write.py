"""Builds the page from its template, sections, style, script, data and plotly's script."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgefl.errors import UserError
from edgefl.record.outputs import write_output
from edgefl.report.html import render
from edgefl.report.page.figures import page_data
from edgefl.report.page.robustness import Timed, timed
from edgefl.report.page.sections import sections
from edgefl.report.page.series import series_of
from edgefl.report.rows import run_names
from edgefl.report.run_result import RunResult


def page(runs: Sequence[RunResult]) -> str:
    """The page as text, about five megabytes, of which nearly all is plotly's script."""
    return _page(runs, [timed(run) for run in runs])


def _page(runs: Sequence[RunResult], timings: Sequence[Timed]) -> str:
    from plotly.offline import get_plotlyjs

    series = series_of(runs)
    seeds = {seed for run in runs for seed in run.seeds}
    untrained = "" if any(run.trained for run in runs) else ", nothing trained"
    return render(
        "page.html.jinja",
        title=" | ".join(run_names(runs)),
        subtitle=f"{len(series)} methods, {len(seeds)} seed{'s' * (len(seeds) > 1)}{untrained}",
        version=", ".join(sorted({str(run.summary["edgefl"]) for run in runs})),
        contents=sections(runs, series, timings),
        data=page_data(runs, series),
        plotly=get_plotlyjs(),
    )


def write_page(runs: Sequence[RunResult], path: Path) -> list[str]:
    """Write the page to a file.

    Returns:
        The errors of damaged files that the page omits.
    """
    timings = [timed(run) for run in runs]
    write_output(path, _page(runs, timings))
    return [str(found) for found in timings if isinstance(found, UserError)]
