"""``edgefl report``: compare finished runs in tables and verdicts."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from edgefl.cli.arguments import argument, new_file, new_folder, option
from edgefl.cli.printing import into_file, say, standard_output
from edgefl.errors import UserError
from edgefl.files import user_path
from edgefl.record.outputs import write_output
from edgefl.wording import escape

if TYPE_CHECKING:
    from edgefl.report import RunResult
    from edgefl.report.grid import Table


Format = Literal["table", "markdown", "csv", "latex"]
Layout = Literal["comparison", "paper"]


def report(  # noqa: PLR0917  (Typer reads options from the signature)
    runs: Annotated[
        list[Path], argument(parser=user_path, metavar="RUN...", help="Run directories, or a sweep's folder.")
    ],
    form: Annotated[Format, typer.Option("--format", help="Output format.")] = "table",
    output: Annotated[Path | None, new_file("Write to this file instead of printing.", "--output", "-o")] = None,
    layout: Annotated[
        Layout, typer.Option(help="paper: smoothed accuracy at rounds, and rounds to each target (N+: not reached).")
    ] = "comparison",
    at: Annotated[
        list[int] | None, option(metavar="N", min=1, help="Rounds for --layout paper; half and all if not given.")
    ] = None,
    html: Annotated[Path | None, new_file("Write one self-contained page instead of a table.")] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            parser=user_path,
            metavar="paper|RUN",
            help="Compare with the numbers in the scenario's paper, or with a predicted run of the same scenario.",
        ),
    ] = None,
    tensorboard: Annotated[Path | None, new_folder("Write scalars for TensorBoard instead of a table.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Compare the methods of finished runs in one table, and name the winner.

    CSV output contains base units in full precision: for each quantity the mean and the half width of its 95 %
    confidence interval.
    """
    from edgefl.report.sweep_result import results_in

    given = {
        "--format": form != "table",
        "--output": output is not None,
        "--layout paper": layout == "paper",
        "--html": html is not None,
        "--against": against is not None,
        "--tensorboard": tensorboard is not None,
        "--json": as_json,
    }
    _refuse_excluded({option for option, is_given in given.items() if is_given})
    if at and layout != "paper":
        raise UserError("needs --layout paper", file=f"--at {at[0]}")
    # Pages and TensorBoard files show single run directories; tables combine the seeds of a sweep's setting.
    together = html is None and tensorboard is None
    results = [result for run in runs for result in results_in(run, together=together)]
    if html is not None or tensorboard is not None:
        _write_html_or_scalars(results, html, tensorboard)
        return
    table = _table(results, layout, at or (), against)
    if as_json or form != "table":
        _write(_text(table, None if as_json else form), output)
    else:
        _print(table, output)


_EXCLUDED_BY = {
    "--json": ("writes JSON instead of a table", ("--format", "--html", "--tensorboard")),
    "--layout paper": ("applies to a table only", ("--html", "--tensorboard", "--against")),
    "--html": ("writes a page instead of a table", ("--format", "--output", "--against")),
    "--tensorboard": ("writes scalars instead of a table", ("--format", "--output", "--against")),
}
"""For each option the reason why it excludes others, and the options that it excludes."""


def _refuse_excluded(given: set[str]) -> None:
    for name, (reason, others) in _EXCLUDED_BY.items():
        excluded = [other for other in others if other in given]
        if name in given and excluded:
            raise UserError(f"{reason}; remove {' and '.join(excluded)}", file=name)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        say(text, nl=False)
        return
    write_output(output, escape(text, keep="\n\t"))


def _table(results: list[RunResult], layout: Layout, at: Sequence[int], against: Path | None) -> Table:
    from edgefl.report.comparison import comparison
    from edgefl.report.paper import paper_table
    from edgefl.report.published import published_table

    if against is not None:
        return published_table(results) if str(against) == "paper" else _against(results, against)
    return paper_table(results, at) if layout == "paper" else comparison(*results)


def _against(results: list[RunResult], against: Path) -> Table:
    """A run compared with its prediction, and their picture next to the run's tables."""
    from edgefl.report import RunResult
    from edgefl.report.prediction.comparing import compare_runs
    from edgefl.report.prediction.table import against_table, write_against

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
    return against_table(found)


def _write_html_or_scalars(results: list[RunResult], html: Path | None, tensorboard: Path | None) -> None:
    if html is not None:
        from edgefl.report.page import write_page

        for warning in write_page(results, html):
            say(f"warning: {warning}; the page omits it", err=True)
        say(f"{html}: self-contained page")
    if tensorboard is not None:
        from edgefl.report.tensorboard import write_tensorboard

        folders = write_tensorboard(results, tensorboard)
        say(f"{tensorboard}: {len(folders)} runs; tensorboard --logdir {tensorboard}")


def _text(table: Table, form: Format | None) -> str:
    """A table as Markdown, CSV or LaTeX, or for ``None`` as JSON."""
    from edgefl.report.grid import json_text, latex, markdown, markdown_lines, written

    if form is None:
        return json_text(table.data)
    if form == "csv":
        return written(table.records)
    if form == "latex":
        return latex(table.grid)
    return "\n".join([markdown(table.grid), *(markdown_lines(lines, title=run) for run, lines in table.sentences)])


def _print(table: Table, output: Path | None) -> None:
    """Print a table and its sentences to the terminal, or write them to a file."""
    from rich.markup import escape
    from rich.padding import Padding

    from edgefl.report.grid import layout

    text = io.StringIO()
    console = standard_output() if output is None else into_file(text)
    console.print(layout(table.grid, console.width))
    if table.sentences:
        console.print("")
    for run, lines in table.sentences:
        if run:
            console.print(f"{escape(run)}:")
        for line in lines:
            console.print(Padding.indent(escape(line), 2) if run else escape(line))
    if output is not None:
        write_output(output, "\n".join(line.rstrip() for line in text.getvalue().split("\n")))
