"""Tables as Markdown, LaTeX, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence

from edgefl.printable import printable_line
from edgefl.report.grid import Grid
from edgefl.report.statistics import Estimate, TimeToTarget


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


def written(records: Sequence[Mapping[str, object]]) -> str:
    """Records as comma-separated values, with one column for each name that occurs."""
    names = list(dict.fromkeys(name for record in records for name in record))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_field(record.get(name)) for name in names] for record in records)
    return text.getvalue()


def _field(value: object) -> object:
    """A field; a text is on one line, and spreadsheets do not read it as a formula."""
    if not isinstance(value, str):
        return value
    text = printable_line(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


def estimate_record(name: str, value: Estimate | None) -> dict[str, object]:
    """A mean and the half width of its interval, with their column names in CSV."""
    return {name: value and value.mean, f"{name}_half_width": value and value.half_width}


def target_record(name: str, found: TimeToTarget) -> dict[str, object]:
    """When a target was reached, with its column names in CSV."""
    return estimate_record(name, found.mean) | {f"{name}_reached": found.reached, f"{name}_median": found.median}


JSON_SCHEMA = 1
"""Increased when a key is renamed or changes its meaning; new keys do not increase it."""


def json_text(data: Mapping[str, object]) -> str:
    """A table as JSON."""
    return json.dumps({"schema": JSON_SCHEMA, **data}, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def estimate_data(value: Estimate | None) -> dict[str, object] | None:
    """A figure for JSON."""
    return value and {"mean": value.mean, "half_width": value.half_width}


def target_data(found: TimeToTarget, unit: str) -> dict[str, object]:
    """When a target was reached, for JSON."""
    return {"reached": found.reached, unit: estimate_data(found.mean), "median": found.median}
