"""``edgefl report``: compare finished runs in tables and verdicts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgefl.durable_file import write_output
from edgefl.errors import UserError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from edgefl.report import RunResult


class Format(StrEnum):
    """The output format of a comparison."""

    table = "table"
    markdown = "markdown"
    csv = "csv"
    latex = "latex"


class Layout(StrEnum):
    """Which columns the table has."""

    comparison = "comparison"
    paper = "paper"


class Against(StrEnum):
    """What a run is compared with."""

    paper = "paper"


def report(  # noqa: PLR0917  (Typer reads options from the signature)
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run directories, or a sweep's folder.", show_default=False)
    ],
    form: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.table,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write to this file instead of printing.", show_default=False
        ),
    ] = None,
    layout: Annotated[
        Layout, typer.Option(help="paper: smoothed accuracy at rounds, and rounds to each target (N+: not reached).")
    ] = Layout.comparison,
    at: Annotated[
        list[int] | None,
        typer.Option(
            metavar="N", min=1, help="Rounds for --layout paper; half and all if not given.", show_default=False
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write one self-contained page instead of a table.", show_default=False),
    ] = None,
    against: Annotated[
        Against | None, typer.Option("--against", help="Compare with the numbers published in the scenario's paper.")
    ] = None,
    tensorboard: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write scalars for TensorBoard instead of a table.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Compare the methods of finished runs in one table, and name the winner.

    CSV output contains base units in full precision: for each quantity the mean and the half width of its 95 %
    confidence interval.
    """
    from edgefl.report.sweep_result import results_in

    given = {
        "--format": form is not Format.table,
        "--output": output is not None,
        "--layout paper": layout is Layout.paper,
        "--html": html is not None,
        "--against": against is not None,
        "--tensorboard": tensorboard is not None,
        "--json": as_json,
    }
    _refuse_excluded({option for option, is_given in given.items() if is_given})
    if at and layout is not Layout.paper:
        raise UserError("needs --layout paper", file=f"--at {at[0]}")
    # A page and TensorBoard read single run directories; tables combine the seeds of a sweep's setting.
    together = html is None and tensorboard is None
    results = [result for run in runs for result in results_in(run, together=together)]
    if as_json:
        _write(_json(results, layout, at or (), against), output)
        return
    if against is not None:
        _write(_published(results, form, to_file=output is not None), output)
        return
    if html is not None or tensorboard is not None:
        _write_html_or_scalars(results, html, tensorboard)
        return
    if layout is Layout.paper:
        text = _paper(results, form, at or (), to_file=output is not None)
    else:
        text = _table(results, to_file=output is not None) if form is Format.table else _text(results, form)
    _write(text, output)


_EXCLUDED_BY = {
    "--json": ("writes JSON instead of a table", ("--format", "--html", "--tensorboard")),
    "--layout paper": ("applies to a table only", ("--html", "--tensorboard", "--against")),
    "--html": ("writes a page instead of a table", ("--format", "--output", "--against")),
    "--tensorboard": ("writes scalars instead of a table", ("--format", "--output", "--against")),
}
"""For each option the reason why it excludes others, and the options that it excludes."""


def _refuse_excluded(given: set[str]) -> None:
    for option, (reason, others) in _EXCLUDED_BY.items():
        excluded = [other for other in others if other in given]
        if option in given and excluded:
            raise UserError(f"{reason}; remove {' and '.join(excluded)}", file=option)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        typer.echo(text, nl=False)
        return
    write_output(output, text)


def _json(results: list[RunResult], layout: Layout, at: Sequence[int], against: Against | None) -> str:
    from edgefl.report.as_json import comparison_json, paper_json, published_json

    if against is not None:
        return published_json(results)
    return paper_json(results, at) if layout is Layout.paper else comparison_json(results)


def _write_html_or_scalars(results: list[RunResult], html: Path | None, tensorboard: Path | None) -> None:
    if html is not None:
        from edgefl.report.page import write_page

        for warning in write_page(results, html):
            typer.echo(f"warning: {warning}; the page omits it", err=True)
        typer.echo(f"{html}: self-contained page")
    if tensorboard is not None:
        from edgefl.report.tensorboard import write_tensorboard

        folders = write_tensorboard(results, tensorboard)
        typer.echo(f"{tensorboard}: {len(folders)} runs; tensorboard --logdir {tensorboard}")


def _paper(results: list[RunResult], form: Format, at: Sequence[int], *, to_file: bool) -> str:
    from edgefl.report.formats import latex, markdown
    from edgefl.report.paper import paper_csv, paper_grid, paper_rows
    from edgefl.report.table import grid_table

    rows = paper_rows(results, at)
    if form is Format.csv:
        return paper_csv(rows)
    grid = paper_grid(rows)
    if form is Format.table:
        return _printed([grid_table(grid)], to_file=to_file)
    return latex(grid) if form is Format.latex else markdown(grid)


def _published(results: list[RunResult], form: Format, *, to_file: bool) -> str:
    from edgefl.cli.published import beside_the_paper
    from edgefl.report.formats import latex, markdown
    from edgefl.report.published_table import published_csv, published_grid

    if form is Format.table:
        return beside_the_paper(results, to_file=to_file)
    if form is Format.csv:
        return published_csv(results)
    grid = published_grid(results)
    return latex(grid) if form is Format.latex else markdown(grid)


def _text(results: list[RunResult], form: Format) -> str:
    from edgefl.report import as_csv, as_latex, as_markdown, comparison_rows
    from edgefl.report.verdict import verdicts

    rows = comparison_rows(*results)
    if form is Format.csv:
        return as_csv(rows)
    if form is Format.latex:
        return as_latex(rows)
    sections = [[f"**{run}**"] * bool(run) + lines for run, lines in verdicts(results)]
    return "\n".join([as_markdown(rows), *("".join(f"{line}  \n" for line in lines) for lines in sections)])


def _table(results: list[RunResult], *, to_file: bool) -> str:
    from rich.markup import escape
    from rich.padding import Padding

    from edgefl.cli.console import standard_output, width_of_a_file
    from edgefl.report import comparison_table
    from edgefl.report.verdict import verdicts

    width = width_of_a_file() if to_file else standard_output().width
    table = comparison_table(*results, width=width)
    parts: list[RenderableType] = [table, ""]
    for run, lines in verdicts(results):
        parts += [f"{escape(run)}:"] * bool(run)
        parts += [Padding.indent(escape(line), 2) if run else escape(line) for line in lines]
    return _printed(parts, to_file=to_file)


def _printed(parts: Sequence[RenderableType], *, to_file: bool) -> str:
    """The text as a terminal shows it; for a file, without terminal control codes."""
    from edgefl.cli.console import standard_output, width_of_a_file

    console = standard_output()
    width = width_of_a_file() if to_file else console.width
    with console.capture() as captured:
        for part in parts:
            console.print(part, width=width)
    text = captured.get()
    return (
        re.sub("\x1b\\[[0-9;]*m", "", "\n".join(line.rstrip() for line in text.splitlines())) + "\n"
        if to_file
        else text
    )
