"""A run compared with its paper's numbers, as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

    from edgefl.report import RunResult


def beside_the_paper(results: list[RunResult]) -> Iterator[RenderableType]:
    """For each run the published numbers, our numbers and the gaps, and whether the order of methods agrees."""
    from rich.markup import escape
    from rich.table import Table

    from edgefl.report.published import cells, comparisons, orderings, shortened

    for run in results:
        found = comparisons(run)
        table = Table("method", "metric", title=escape(run.name), box=None, pad_edge=False, title_justify="left")
        for header in ("published", "ours", "gap"):
            table.add_column(header, justify="right")
        table.add_column("source")
        for each in found:
            table.add_row(*map(escape, cells(each)))
        yield table
        note = shortened(run)
        yield from map(escape, [*([note] if note else []), *orderings(found)])
