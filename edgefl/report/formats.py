"""The comparison as Markdown, CSV, LaTeX and HTML."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence

from edgefl.printable import printable_line
from edgefl.report.columns import comparison_grid
from edgefl.report.grid import Grid
from edgefl.report.html import render
from edgefl.report.rows import Row
from edgefl.report.statistics import Estimate


def as_markdown(rows: Sequence[Row]) -> str:
    """The comparison in GitHub's Markdown, with the notes below it."""
    return markdown(comparison_grid(rows))


def as_latex(rows: Sequence[Row]) -> str:
    """The comparison as a ``tabular`` for the booktabs package, with the notes as comments above it."""
    return latex(comparison_grid(rows))


def markdown(grid: Grid) -> str:
    """A table in GitHub's Markdown, best figures bold, with the notes below it."""
    lines = [
        _markdown_line([_markdown(head.line) for head in grid.heads]),
        _markdown_line(["---" if head.text else "---:" for head in grid.heads]),
        *(
            _markdown_line([f"**{_markdown(cell.line)}**" if cell.best else _markdown(cell.line) for cell in row])
            for row in grid.rows
        ),
    ]
    return "\n".join([*lines, "", markdown_lines(grid.notes)]).rstrip() + "\n"


def markdown_lines(lines: Sequence[str], title: str = "") -> str:
    """Sentences, each on its own line, below a bold title if there is one."""
    shown = [re.sub(r"^(\d+(?=[.)])|(?=[#+=-]))", r"\1\\", _markdown(line)) for line in lines]
    return "".join(f"{line}  \n" for line in [*([f"**{_markdown(title)}**"] if title else []), *shown])


def _markdown(words: str) -> str:
    """Plain text: every character that could start HTML, an entity, a link, emphasis or a cell is escaped."""
    return re.sub(r"[\\`*\[\]<>|&~]|\b_|_\b", r"\\\g<0>", printable_line(words))


def _markdown_line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def latex(grid: Grid) -> str:
    """A ``tabular`` for the booktabs package, best figures bold, with the notes as comments above it."""
    shape = "".join("l" if head.text else "r" for head in grid.heads)
    return "\n".join(
        [
            *(f"% {printable_line(line)}" for line in grid.notes),
            rf"\begin{{tabular}}{{{shape}}}",
            r"\toprule",
            _latex_line([_latex(head.line) for head in grid.heads]),
            r"\midrule",
            *(
                _latex_line([rf"\textbf{{{_latex(cell.line)}}}" if cell.best else _latex(cell.line) for cell in row])
                for row in grid.rows
            ),
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


_LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "–": "--",
}


def _latex(words: str) -> str:
    return re.sub(r"[&%$#_{}\\~^±–]", lambda sign: _LATEX[sign[0]], printable_line(words))


def _latex_line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def as_html(rows: Sequence[Row]) -> str:
    """A plain HTML table with the notes below it; every text is escaped."""
    return render("comparison.html.jinja", compared=comparison_grid(rows))


def as_csv(rows: Sequence[Row]) -> str:
    """Comma-separated values for machines: base units, full precision, an empty field where there is no figure.

    Each quantity has two columns, its mean and the half width of its 95 % interval; each target has four: the mean
    time with its half width, the number of seeds that reached it, and the median over all seeds.
    """
    records = [_record(row) for row in rows]
    return written(records)


def written(records: Sequence[Mapping[str, object]]) -> str:
    """Records as comma-separated values, with one column for each name that occurs."""
    names = list(dict.fromkeys(name for record in records for name in record))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


_QUANTITIES = {
    "accuracy_final": "final",
    "accuracy_best": "best",
    "seconds": "seconds",
    "rounds": "rounds",
    "rounds_without_update": "without_update",
    "refused": "refused",
    "bytes_down": "bytes_down",
    "bytes_up": "bytes_up",
    "bytes_wasted": "bytes_wasted",
    "joules": "joules",
    "exposed_seconds": "exposed_seconds",
    "hidden_seconds": "hidden_seconds",
    "bytes_down_actual_blocks": "down_actual",
    "bytes_down_uniform_blocks": "down_uniform",
    "front_block_age": "front_age",
}


def _record(row: Row) -> dict[str, object]:
    record: dict[str, object] = {"run": plain_text(row.run), "method": plain_text(row.label), "seeds": row.seeds}
    for name, attribute in _QUANTITIES.items():
        record |= estimate_record(name, getattr(row, attribute))
    for accuracy, target in row.targets.items():
        name = f"seconds_to_{accuracy:g}"
        record |= estimate_record(name, target.mean)
        record |= {f"{name}_reached": target.reached, f"{name}_median": target.median}
    return record | {"stop": " ".join(f"{reason}:{count}" for reason, count in row.stops)}


def estimate_record(name: str, value: Estimate | None) -> dict[str, object]:
    """A mean and the half width of its interval, with their column names in a CSV file."""
    return {name: value.mean if value else None, f"{name}_half_width": value.half_width if value else None}


def plain_text(text: str) -> str:
    """A text on one line that spreadsheets do not read as a formula."""
    text = printable_line(text)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
