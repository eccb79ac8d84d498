"""``edgefl report``: tables and verdicts of finished runs, side by side."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgefl.errors import UserError

if TYPE_CHECKING:
    from edgefl.report import RunResult


class Format(StrEnum):
    """How the comparison is written."""

    table = "table"
    markdown = "markdown"
    csv = "csv"
    latex = "latex"


class Against(StrEnum):
    """What a run is held against."""

    paper = "paper"


def report(  # noqa: PLR0917  (Typer reads options from the signature)
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories.", show_default=False)],
    form: Annotated[Format, typer.Option("--format", help="How the comparison is written.")] = Format.table,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write there instead of printing.", show_default=False),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write one self-contained page instead of a table.", show_default=False),
    ] = None,
    against: Annotated[
        Against | None, typer.Option("--against", help="Compare with the numbers that the scenario's paper published.")
    ] = None,
) -> None:
    """Compare the methods of finished runs in one table, and say who wins.

    A csv holds base units in full precision, a mean and the half width of its 95 % interval for each quantity.
    """
    from edgefl.report import RunResult

    results = [RunResult(run) for run in runs]
    if against is not None:
        from edgefl.cli.published import beside_the_paper

        _write(beside_the_paper(results, to_file=output is not None), output)
        return
    if html is not None:
        from edgefl.report.page import write_page

        write_page(results, html)
        typer.echo(f"{html}: the page, complete in this file")
        return
    text = _table(results, to_file=output is not None) if form is Format.table else _text(results, form)
    _write(text, output)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror or error}", file=str(output)) from None


def _text(results: list[RunResult], form: Format) -> str:
    from edgefl.report import as_csv, as_latex, as_markdown, comparison_rows

    rows = comparison_rows(*results)
    if form is Format.csv:
        return as_csv(rows)
    if form is Format.latex:
        return as_latex(rows)
    sentences = [f"{line}  " for line in _verdicts(results)]
    return "\n".join([as_markdown(rows), *sentences, ""])


def _table(results: list[RunResult], *, to_file: bool) -> str:
    from rich.markup import escape

    from edgefl.cli.console import WIDTH_OF_A_FILE, standard_output
    from edgefl.report import comparison_table

    console = standard_output()
    width = WIDTH_OF_A_FILE if to_file else console.width
    with console.capture() as captured:
        console.print(comparison_table(*results, width=width), width=width)
        console.print()
        for line in _verdicts(results):
            console.print(escape(line), width=width)
    text = captured.get()
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n" if to_file else text


def _verdicts(results: list[RunResult]) -> list[str]:
    """Each run's sentences; with several runs, each begins with the run's name."""
    from edgefl.report import verdict
    from edgefl.report.rows import run_names

    names = run_names(results)
    prefixes = [f"{name}: " if len(results) > 1 else "" for name in names]
    return [
        f"{prefix}{line}" for prefix, run in zip(prefixes, results, strict=True) for line in verdict(run).split("\n")
    ]
