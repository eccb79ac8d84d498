"""``edgefl report``: compare finished runs in tables and verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from edgefl.cli.arguments import Details, Methods, argument, check_options, new_figure_file, new_file, option
from edgefl.cli.printing import say, width
from edgefl.errors import UserError
from edgefl.files import user_path
from edgefl.record.paths import write_output
from edgefl.wording import escape

if TYPE_CHECKING:
    from edgefl.report.run_result import RunResult
    from edgefl.report.table import Table


Format = Literal["table", "markdown", "csv", "latex"]
AXES = "time|traffic|energy|computation|rounds|NAME"
Layout = Literal["comparison", "paper"]


def report(  # noqa: PLR0917  (Typer reads options from the signature)
    context: typer.Context,
    runs: list[Path] = argument(..., "Run directories, or a sweep's folder.", parser=user_path, metavar="RUN..."),
    details: Details = False,
    form: Format = option("table", "Output format.", "--format"),
    output: Path | None = new_file("Write to this file instead of printing.", "--output", "-o"),
    layout: Layout = option(
        "comparison", "paper: smoothed accuracy at rounds, and rounds to each target (N+: not reached)."
    ),
    at: list[int] | None = option(None, "Rounds for --layout paper; half and all if not given.", metavar="N", min=1),
    html: Path | None = new_file("Write one self-contained page instead of a table."),
    figure: Path | None = new_figure_file("Draw a figure for a paper: .pdf, .svg or .png."),
    x: str | None = option(
        None, "X-axis of --figure, also the name of an own figure.", "--x", unset="time", metavar=AXES
    ),
    methods: Methods = None,
    columns: str | None = option(
        None, "Only these columns of the table, separated by commas, such as 'accuracy, 80 % at'.", metavar="NAMES"
    ),
    stragglers: bool = option(
        False,
        "The ten clients that closed most rounds, and what a round takes without them or with a deadline.",
        "--stragglers",
    ),
    against: Path | None = option(
        None,
        "Compare with the numbers in the scenario's paper, or with a predicted run of the same scenario.",
        parser=user_path,
        metavar="paper|RUN",
    ),
    as_json: bool = option(False, "Print the table as JSON.", "--json"),
) -> None:
    """Compare the methods of finished runs in one table, and name the winner; of two runs, what changed.

    CSV output contains base units in full precision: for each quantity the mean and the half width of its 95 %
    confidence interval.
    """
    modes: dict[str, tuple[str, ...]] = {
        "html": ("runs",),
        "figure": ("runs", "x", "methods"),
        "as_json": ("runs", "output", "layout", "at", "details", "against", "stragglers"),
        "stragglers": ("runs", "output", "form", "columns", "as_json"),
    }
    if layout == "paper":
        modes["layout"] = ("runs", "output", "at", "form", "columns", "as_json")
    elif at:
        raise UserError("expected it with --layout paper", file="--at")
    check_options(context, modes, {"x": ["figure"], "methods": ["figure"]})
    # Pages show single run directories; tables combine the seeds of a sweep's setting.
    results = [result for run in runs for result in _opened(run, together=html is None)]
    _give_defaults(results)
    if figure is not None:
        from edgefl.report.figure_file import write_figure
        from edgefl.report.pictures import accuracy_figure

        write_figure(accuracy_figure(results, [x or "time"], methods or ()), figure)
        say(f"{figure}: figure")
        return
    if html is not None:
        from edgefl.report.page.sections import page

        write_output(html, page(results))
        say(f"{html}: self-contained page")
        return
    table = _stragglers(results) if stragglers else _table(results, layout, at or (), against, details=details)
    if columns is not None:
        table = table.only([each.strip() for each in columns.split(",")])
    form_of = {
        "markdown": table.markdown,
        "csv": table.csv,
        "latex": table.latex,
        "table": lambda: table.text(width()) + "\n",
    }
    text = escape((table.json if as_json else form_of[form])(), keep="\n\t")
    if output is None:
        say(text, nl=False)
    else:
        write_output(output, text)


def _opened(run: Path, *, together: bool) -> Sequence[RunResult]:
    from edgefl.record import RunPaths
    from edgefl.report.sweep_result import results_in

    if not RunPaths(run).state.is_file() or RunPaths(run).summary.is_file():
        return results_in(run, together=together)
    from edgefl.cli.simulate import metric_of
    from edgefl.report.unfinished import unfinished_run

    return [unfinished_run(run, lambda: metric_of(run))]


def _give_defaults(runs: Sequence[RunResult]) -> None:
    """Give the scenarios of runs with different keys the defaults of options that the build of a run did not have."""
    from edgefl.report.rows import flat_values

    if len({frozenset(flat_values(run.scenario)) for run in runs}) > 1:
        from edgefl.scenario import load_scenario, resolve

        for run in runs:
            with suppress(UserError):  # one that this build cannot read, or of a Flower app
                run.scenario = resolve(load_scenario(run.paths.scenario, run_code=False))


def _table(
    results: list[RunResult], layout: Layout, at: Sequence[int], against: Path | None, *, details: bool
) -> Table:
    from edgefl.report.comparison import comparison
    from edgefl.report.paper import paper_table
    from edgefl.report.published import published_table

    if against is not None:
        return published_table(results) if str(against) == "paper" else _against(results, against, details=details)
    return paper_table(results, at) if layout == "paper" else comparison(*results, detailed=details)


def _stragglers(results: list[RunResult]) -> Table:
    from edgefl.report.page.series import series_of
    from edgefl.report.stragglers import stragglers_table

    table = stragglers_table(series_of(results))
    if table is None:
        raise UserError("no round that waited for single clients is in an event log of these runs", file="--stragglers")
    return table


def _against(results: list[RunResult], against: Path, *, details: bool) -> Table:
    """A run compared with its prediction, and their picture next to the run's tables."""
    from edgefl.report.prediction.comparing import compare_runs
    from edgefl.report.prediction.table import against_table, write_against
    from edgefl.report.run_result import RunResult

    if len(results) != 1 or results[0].setting is not None:
        raise UserError("expected one run directory to compare with a run", file=f"--against {against}")
    found = compare_runs(results[0], RunResult(against))
    try:
        picture = write_against(found)
    except OSError as error:
        say(f"warning: {results[0].paths.against} cannot be written: {error.strerror or error}", err=True)
    else:
        if picture is not None:
            say(f"{picture}: predicted over measured seconds", err=True)
    return against_table(found, detailed=details)
