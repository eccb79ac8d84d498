"""A run compared with its paper's numbers, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgefl.report import RunResult


def beside_the_paper(results: list[RunResult], *, to_file: bool) -> str:
    """For each run the published numbers, our numbers and the gaps, and whether the order of methods agrees."""
    from rich.markup import escape
    from rich.table import Table

    from edgefl.cli.console import standard_output, width_of_a_file
    from edgefl.report.published import cells, comparisons, orderings, shortened

    console = standard_output()
    width = width_of_a_file() if to_file else console.width
    with console.capture() as captured:
        for run in results:
            found = comparisons(run)
            table = Table("method", "metric", title=escape(run.name), box=None, pad_edge=False, title_justify="left")
            for header in ("published", "ours", "gap"):
                table.add_column(header, justify="right")
            table.add_column("source")
            for each in found:
                table.add_row(*map(escape, cells(each)))
            console.print(table, width=width)
            note = shortened(run)
            for line in [*([note] if note else []), *orderings(found)]:
                console.print(escape(line), width=width)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"
