"""Builds the page from its template, sections, style, script, data and plotly's script."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from edgefl.errors import UserError
from edgefl.printable import printable_data
from edgefl.record.outputs import write_output
from edgefl.report.page.figures import page_data
from edgefl.report.page.markup import embedded, text
from edgefl.report.page.robustness import Timed, timed
from edgefl.report.page.sections import sections
from edgefl.report.page.series import series_of
from edgefl.report.rows import run_names
from edgefl.report.run_result import RunResult


def page(runs: Sequence[RunResult]) -> str:
    """The page as text, about five megabytes, of which nearly all is plotly's script.

    Raises:
        UserError: a file of a run cannot be read; only ``sensitivity.parquet`` may be damaged.
    """
    return _page(runs, [timed(run) for run in runs])


def _page(runs: Sequence[RunResult], timings: Sequence[Timed]) -> str:
    from plotly.offline import get_plotlyjs

    series = series_of(runs)
    found = sections(runs, series, timings)
    names = run_names(runs)
    seeds = sorted({seed for run in runs for seed in run.seeds})
    pieces = {
        "title": text(" | ".join(names)),
        "subtitle": text(
            f"{len(series)} methods, {len(seeds)} seed{'s' * (len(seeds) > 1)}"
            f"{'' if any(run.trained for run in runs) else ', nothing trained'}"
        ),
        "version": text(", ".join(sorted({str(run.summary["edgefl"]) for run in runs}))),
        "style": _file("page.css"),
        "contents": "".join(f'<li><a href="#{each.name}">{text(each.title)}</a></li>' for each in found),
        "sections": "".join(
            f'<section id="{each.name}"><h2>{text(each.title)}</h2>{each.html}</section>' for each in found
        ),
        "data": embedded(printable_data(page_data(runs, series))),
        "plotly": get_plotlyjs(),
        "script": _file("page.js"),
    }
    # A single pass, so that a name that looks like a placeholder is not replaced.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: pieces[place[1]], _file("page.html"))


def write_page(runs: Sequence[RunResult], path: Path) -> list[str]:
    """Write the page to a file.

    Returns:
        The errors of damaged files that the page omits.

    Raises:
        UserError: a run cannot be read, or the file cannot be written.
    """
    timings = [timed(run) for run in runs]
    written = _page(runs, timings)
    write_output(path, written)
    return [str(found) for found in timings if isinstance(found, UserError)]


def _file(name: str) -> str:
    return (files("edgefl.report.page") / name).read_text(encoding="utf-8")
