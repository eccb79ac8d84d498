"""A table made of columns, as text for a terminal, Markdown, LaTeX, HTML, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from edgefl.errors import UserError
from edgefl.report.quantities import unit_for
from edgefl.report.statistics import NO_ESTIMATE, Estimate, TimeToTarget
from edgefl.wording import escape

MISSING = "–"
_GAP = "  "
_FEW = 8
"""Of tables with at most as many rows, the last columns can be lines below."""
_NARROW = 20
"""Columns of words are not narrower than this."""

Value = Estimate | TimeToTarget | float | str | bool | None


class Column(NamedTuple):
    """A column."""

    head: str  # its heading
    cells: Sequence[str]  # what people read, one for each row
    values: Sequence[Value] = ()  # what programs read, in base units
    key: str = ""  # its name in CSV; empty if it is not written there
    text: bool = False  # whether it contains words, aligned to the left
    dimension: str = ""  # that of its figures
    best: frozenset[int] = frozenset()  # the rows whose figure is the best one, or not decided against it


def words(head: str, cells: Sequence[str], key: str = "") -> Column:
    """A column of words."""
    return Column(head, cells, cells, key, text=True)


def hidden(values: Sequence[Value], key: str) -> Column:
    """A column of CSV that tables for people do not show."""
    return Column("", (), values, key)


def finite(value: float | None) -> float | None:
    """The value if it is finite, because JSON has no infinity or NaN."""
    return value if value is not None and math.isfinite(value) else None


def figures(head: str, values: Sequence[Value], dimension: str, key: str = "", *, spread: bool = False) -> Column:
    """A column of figures with one unit; ``spread``: each mean with half the width of its interval.

    >>> figures("time", [0.5, Estimate(12.0, 1.0, 3), None], "seconds", spread=True).cells
    ['0.5 s', '12.0 ± 1.0 s', '–']
    """
    numbers = [value.mean if isinstance(value, Estimate) else value for value in values]
    unit = unit_for([number for number in numbers if isinstance(number, int | float)], dimension)
    cells = []
    for value, number in zip(values, numbers, strict=True):
        if not isinstance(number, int | float):
            cells.append(number if isinstance(number, str) else MISSING)
            continue
        half = value.half_width if spread and isinstance(value, Estimate) else None
        parts = [unit.number(number), f"± {unit.interval(half, number)}" if half else "", unit.symbol]
        cells.append(" ".join(filter(None, parts)))
    return Column(head, cells, values, key, dimension=dimension)


@dataclass(frozen=True)
class Table:
    """A table for people and for programs."""

    columns: Sequence[Column]  # its columns; the first ones, which contain words, name the rows
    notes: Sequence[str] = ()  # sentences below it
    title: Sequence[str] = ()  # lines above it
    data: Mapping[str, Any] | None = None  # its content as JSON; the records of CSV if not given
    more: Sequence[Table] = ()  # further tables below it
    files: Sequence[Column] | None = None  # the columns of CSV, where they have other rows than columns

    @property
    def names(self) -> int:
        """How many of the first columns name the rows."""
        return next((number for number, column in enumerate(self.columns) if not column.text), 1)

    @property
    def heads(self) -> list[str]:
        return [column.head for column in self.columns]

    @property
    def lines(self) -> list[list[str]]:
        """The rows."""
        return [list(row) for row in zip(*(column.cells for column in self.columns), strict=True)]

    def _marked(self, written: Callable[[str], str], bold: str) -> list[list[str]]:
        """The heads and the rows in a format; ``bold`` has a place for the best figures."""
        columns = [
            [
                written(each.head),
                *(bold % written(cell) if row in each.best else written(cell) for row, cell in enumerate(each.cells)),
            ]
            for each in self.columns
        ]
        return [list(row) for row in zip(*columns, strict=True)] or [[]]

    def only(self, heads: Sequence[str]) -> Table:
        """The table with these columns next to those that name the rows, in this order."""
        names, others = self.columns[: self.names], {each.head: each for each in self.columns[self.names :]}
        for head in heads:
            if head not in others:
                raise UserError(f"no column '{head}', expected some of {', '.join(others)}", file="--columns")
        return replace(self, columns=[*names, *(others[head] for head in heads)], more=(), files=None)

    @property
    def records(self) -> list[dict[str, object]]:
        """The rows of CSV: base units and full precision, ``None`` where there is no figure."""
        written = [column for column in self.files or self.columns if column.key]
        rows = zip(*(column.values for column in written), strict=True)
        return [
            {
                name: each
                for column, value in zip(written, row, strict=True)
                for name, each in _fields(column.key, value)
            }
            for row in rows
        ]

    def text(self, width: int) -> str:
        """The table for a terminal; no figure is wider than ``width``, and no row has several lines of figures.

        The last one or two columns that do not fit are lines below a short table, else further blocks of the table.
        """
        parts = ["\n".join(_filled(escape(line), width) for line in self.title)]
        if self.columns and self.columns[0].cells:
            parts.append(self._blocks(width))
        parts.append("\n".join(_filled(escape(line), width) for line in self.notes))
        return "\n\n".join([part for part in parts if part] + [table.text(width) for table in self.more])

    def _blocks(self, width: int) -> str:
        columns, names = self.columns, self.names
        widths = [max(len(escape(text)) for text in (column.head, *column.cells)) for column in columns]
        wrapped = [place for place, column in enumerate(columns) if column.text and place >= names]
        while sum(widths) + len(_GAP) * (len(widths) - 1) > width:
            wide = [place for place in wrapped if widths[place] > _NARROW]
            if not wide:
                break
            widths[max(wide, key=widths.__getitem__)] -= 1
        blocks: list[list[int]] = [list(range(names))]
        for place in range(names, len(columns)):
            if len(blocks[-1]) > names and sum(widths[each] + len(_GAP) for each in [*blocks[-1], place]) - 2 > width:
                blocks.append(list(range(names)))
            blocks[-1].append(place)
        few = len(blocks) == 2 and len(blocks[1]) - names <= 2 and names == 1 and len(columns[0].cells) <= _FEW
        below: list[int] = blocks.pop()[names:] if few else []
        texts = [_block([columns[place] for place in block], [widths[place] for place in block]) for block in blocks]
        labels = [", ".join(row) for row in zip(*(column.cells for column in columns[:names]), strict=True)]
        lines = [
            f"{columns[place].head}: "
            + ", ".join(f"{label} {cell}" for label, cell in zip(labels, columns[place].cells, strict=True))
            for place in below
        ]
        return "\n\n".join(texts) + "".join("\n" + _filled(escape(line), width) for line in lines)

    def markdown(self) -> str:
        """GitHub's Markdown, best figures bold, with the title above and the notes below."""
        head, *rows = self._marked(_markdown, "**%s**")
        marks = ["---" if column.text else "---:" for column in self.columns]
        lines = ["| " + " | ".join(row) + " |" for row in (head, marks, *rows)]
        parts = [_paragraph(self.title), "\n".join(lines) + "\n" if rows else "", _paragraph(self.notes)]
        return "\n".join([part for part in parts if part] + [table.markdown() for table in self.more])

    def latex(self) -> str:
        """A ``tabular`` for the booktabs package, best figures bold, small enough for an article, notes as comments."""
        shape = "".join("l" if column.text else "r" for column in self.columns)
        lines = [" & ".join(row) + r" \\" for row in self._marked(_latex, r"\textbf{%s}")]
        comments = [line for line in [*self.title, *self.notes, r"Needs \usepackage{booktabs}"] if line]
        text = [*(f"% {escape(line)}" for line in comments), r"{\small\setlength{\tabcolsep}{3pt}%"]
        text += [rf"\begin{{tabular}}{{{shape}}}", r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule"]
        text += [r"\end{tabular}}", ""]
        return "\n".join([*text, *(table.latex() for table in self.more)])

    def csv(self) -> str:
        """Comma-separated values, with one column for each name that occurs."""
        records = self.records
        names = list(dict.fromkeys(name for record in records for name in record))
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([_field(record.get(name)) for name in names] for record in records)
        return text.getvalue()

    def json(self) -> str:
        data = {"rows": self.records} if self.data is None else self.data
        return json.dumps({"schema": JSON_SCHEMA, **data}, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


JSON_SCHEMA = 2
"""Increased when a key is renamed or changes its meaning; new keys do not increase it."""


def _fields(key: str, value: Value) -> list[tuple[str, object]]:
    """A value with its names in CSV."""
    match value:
        case Estimate():
            return [(key, value.mean), (f"{key}_half_width", value.half_width)]
        case TimeToTarget():
            return [
                *_fields(key, value.mean or NO_ESTIMATE),
                (f"{key}_reached", value.reached),
                (f"{key}_median", value.median),
            ]
    return [(key, value)]


def estimate_data(value: Estimate | None) -> dict[str, object] | None:
    """A mean with its interval, for JSON."""
    return value and {"mean": value.mean, "half_width": value.half_width}


def target_data(found: TimeToTarget, unit: str) -> dict[str, object]:
    """When a target was reached, for JSON."""
    return {"reached": found.reached, unit: estimate_data(found.mean), "median": found.median}


def _block(columns: Sequence[Column], widths: Sequence[int]) -> str:
    """The rows of some columns; words that are wider than their column have several lines."""
    lines = []
    for cells in zip(*((column.head, *column.cells) for column in columns), strict=True):
        parts = [
            textwrap.wrap(escape(cell), width) or [""] if column.text and len(cell) > width else [escape(cell)]
            for column, cell, width in zip(columns, cells, widths, strict=True)
        ]
        for number in range(max(map(len, parts))):
            texts = [part[number] if number < len(part) else "" for part in parts]
            fitted = [
                text.ljust(width) if column.text else text.rjust(width)
                for column, text, width in zip(columns, texts, widths, strict=True)
            ]
            lines.append(_GAP.join(fitted).rstrip())
    return "\n".join(lines)


def _filled(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    return textwrap.fill(line, width, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)


def _paragraph(lines: Sequence[str]) -> str:
    """Sentences in Markdown, each on its own line."""
    shown = [re.sub(r"^(\d+(?=[.)])|(?=[#+=-]))", r"\1\\", _markdown(line)) for line in lines if line]
    return "".join(f"{line}  \n" for line in shown)


def _markdown(text: str) -> str:
    """Plain text: every character that could start HTML, an entity, a link, emphasis or a cell is escaped."""
    return re.sub(r"[\\`*\[\]<>|&~]|\b_|_\b", r"\\\g<0>", escape(text))


_LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--", "\u00a0": "~",
    "±": r"$\pm$", "−": "$-$", "→": r"$\to$", "×": r"$\times$", "≥": r"$\ge$", "≤": r"$\le$", "α": r"$\alpha$",
}  # fmt: skip


def _latex(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in escape(text))


def _field(value: object) -> object:
    """A field; a text is on one line, and spreadsheets do not read it as a formula."""
    if not isinstance(value, str):
        return value
    text = escape(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
