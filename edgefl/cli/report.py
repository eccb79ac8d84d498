"""``edgefl report``: compare finished runs in tables and verdicts."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgefl.cli.printing import say
from edgefl.errors import UserError
from edgefl.printable import printable
from edgefl.record.outputs import output_path, write_output
from edgefl.user_path import new_user_path, user_path

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
        list[Path],
        typer.Argument(
            parser=user_path, metavar="RUN...", help="Run directories, or a sweep's folder.", show_default=False
        ),
    ],
    form: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.table,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            parser=output_path,
            metavar="FILE",
            help="Write to this file instead of printing.",
            show_default=False,
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
        typer.Option(
            parser=output_path,
            metavar="FILE",
            help="Write one self-contained page instead of a table.",
            show_default=False,
        ),
    ] = None,
    against: Annotated[
        Against | None, typer.Option("--against", help="Compare with the numbers published in the scenario's paper.")
    ] = None,
    tensorboard: Annotated[
        Path | None,
        typer.Option(
            parser=new_user_path,
            metavar="DIR",
            help="Write scalars for TensorBoard instead of a table.",
            show_default=False,
        ),
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
    # Pages and TensorBoard files show single run directories; tables combine the seeds of a sweep's setting.
    together = html is None and tensorboard is None
    results = [result for run in runs for result in results_in(run, together=together)]
    if as_json:
        _write(_json(results, layout, at or (), against), output)
    elif html is not None or tensorboard is not None:
        _write_html_or_scalars(results, html, tensorboard)
    elif form is not Format.table:
        _write(_text(results, form, layout, at or (), against), output)
    else:
        _print(lambda width: _tables(results, layout, at or (), against, width), output)


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
        say(text, nl=False)
        return
    write_output(output, printable(text))


def _json(results: list[RunResult], layout: Layout, at: Sequence[int], against: Against | None) -> str:
    from edgefl.report.as_json import comparison_json, paper_json, published_json

    if against is not None:
        return published_json(results)
    return paper_json(results, at) if layout is Layout.paper else comparison_json(results)


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


def _text(results: list[RunResult], form: Format, layout: Layout, at: Sequence[int], against: Against | None) -> str:
    """The comparison as Markdown, CSV or LaTeX."""
    from edgefl.report import as_csv, comparison_rows
    from edgefl.report.columns import comparison_grid
    from edgefl.report.formats import latex, markdown, markdown_lines
    from edgefl.report.paper import paper_csv, paper_grid, paper_rows
    from edgefl.report.published_table import published_csv, published_grid
    from edgefl.report.verdict import verdicts

    if against is not None:
        if form is Format.csv:
            return published_csv(results)
        grid = published_grid(results)
    elif layout is Layout.paper:
        compared = paper_rows(results, at)
        if form is Format.csv:
            return paper_csv(compared)
        grid = paper_grid(compared)
    else:
        rows = comparison_rows(*results)
        if form is Format.csv:
            return as_csv(rows)
        grid = comparison_grid(rows)
        if form is Format.markdown:
            return "\n".join([markdown(grid), *(markdown_lines(lines, title=run) for run, lines in verdicts(results))])
    return latex(grid) if form is Format.latex else markdown(grid)


def _tables(
    results: list[RunResult], layout: Layout, at: Sequence[int], against: Against | None, width: int
) -> Iterable[RenderableType]:
    """The tables and sentences for a terminal of this width."""
    if against is not None:
        from edgefl.cli.published import beside_the_paper

        return beside_the_paper(results)
    if layout is Layout.paper:
        from edgefl.report.paper import paper_grid, paper_rows
        from edgefl.report.table import grid_table

        return [grid_table(paper_grid(paper_rows(results, at)))]
    from rich.markup import escape
    from rich.padding import Padding

    from edgefl.report import comparison_table
    from edgefl.report.verdict import verdicts

    parts: list[RenderableType] = [comparison_table(*results, width=width), ""]
    for run, lines in verdicts(results):
        parts += [f"{escape(run)}:"] * bool(run)
        parts += [Padding.indent(escape(line), 2) if run else escape(line) for line in lines]
    return parts


def _print(parts: Callable[[int], Iterable[RenderableType]], output: Path | None) -> None:
    """Print tables that depend on the width to the terminal, or write them to a file."""
    from edgefl.cli.console import into_file, standard_output

    text = io.StringIO()
    console = standard_output() if output is None else into_file(text)
    for part in list(parts(console.width)):  # make all parts first, so that an error leaves no partial output
        console.print(part)
    if output is not None:
        write_output(output, "\n".join(line.rstrip() for line in text.getvalue().split("\n")))
