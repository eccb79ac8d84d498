"""A table made of columns, as text for a terminal, Markdown, LaTeX, HTML, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

from edgefl.errors import UserError
from edgefl.report.quantities import unit_for
from edgefl.report.statistics import NO_ESTIMATE, Estimate, TimeToTarget
from edgefl.wording import escape

MISSING = "–"
_GAP = "  "
_FEW = 8
"""Of tables with at most as many rows, the last columns can be lines below."""
_NARROW = 16
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


def figures(head: str, values: Sequence[Value], dimension: str, key: str = "", *, spread: bool = False) -> Column:
    """A column of figures with one unit; ``spread``: each mean with half the width of its interval.

    >>> figures("time", [0.5, Estimate(12.0, 1.0, 3), None], "seconds", spread=True).cells
    ['0.5 s', '12.0 ± 1.0 s', '–']
    """
    numbers = [value.mean if isinstance(value, Estimate) else value for value in values]
    unit = unit_for([number for number in numbers if isinstance(number, int | float)], dimension)
    halves = [value.half_width if spread and isinstance(value, Estimate) else None for value in values]
    cells = [
        unit.words(number, half) if isinstance(number, int | float) else number if isinstance(number, str) else MISSING
        for number, half in zip(numbers, halves, strict=True)
    ]
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
        columns = []
        for each in self.columns:
            cells = [bold % written(cell) if row in each.best else written(cell) for row, cell in enumerate(each.cells)]
            columns.append([written(each.head), *cells])
        return [list(row) for row in zip(*columns, strict=True)] or [[]]

    def only(self, heads: Sequence[str]) -> Table:
        """The table with these columns next to those that name the rows, in this order."""
        names, others = self.columns[: self.names], {each.head: each for each in self.columns[self.names :]}
        for head in heads:
            if head not in others:
                raise UserError(f"no column '{head}', expected some of {', '.join(others)}", file="--columns")
        left_out = "|".join(re.escape(head) for head in others if head not in heads)
        notes = [re.sub(rf"; ({left_out}): [^.;]*", "", line) for line in self.notes] if left_out else self.notes
        return replace(self, columns=[*names, *(others[head] for head in heads)], notes=notes, more=(), files=None)

    @property
    def records(self) -> list[dict[str, object]]:
        """The rows of CSV: base units and full precision, ``None`` where there is no figure."""
        written = [column for column in self.files or self.columns if column.key]
        keys = [column.key for column in written]
        rows = zip(*(column.values for column in written), strict=True)
        return [dict(chain.from_iterable(map(_fields, keys, row))) for row in rows]

    def text(self, width: int) -> str:
        """The table for a terminal; no figure is wider than ``width``, and no row has several lines of figures.

        If the columns do not fit, heads are broken between words, then equal names of several rows become a line above
        these; the last one or two columns that still do not fit are lines below a short table, else further blocks.
        """
        parts = ["\n".join(_filled(escape(line), width) for line in self.title)]
        if self.columns and self.columns[0].cells:
            parts.append(self._blocks(width))
        parts.append("\n".join(_filled(escape(line), width) for line in self.notes))
        return "\n\n".join([part for part in parts if part] + [table.text(width) for table in self.more])

    def notebook(self, picture: str = "") -> str:
        """The table as HTML, with a PNG in base64 below."""
        from edgefl.report.html import render

        return render("comparison.html.jinja", table=self, picture=picture)

    def _blocks(self, width: int) -> str:
        columns, names = self.columns, self.names
        groups: Sequence[str] = ()
        repeated = names > 1 and len(set(columns[0].cells)) < len(columns[0].cells)
        if repeated and _taken(map(_least, columns)) > width:
            groups, columns, names = columns[0].cells, columns[1:], names - 1
            width -= len(_GAP)
        widths = _widths(columns, names, width)
        blocks: list[list[int]] = [list(range(names))]
        for place in range(names, len(columns)):
            if len(blocks[-1]) > names and _taken(widths[each] for each in [*blocks[-1], place]) > width:
                blocks.append(list(range(names)))
            blocks[-1].append(place)
        few = len(blocks) == 2 and len(blocks[1]) - names <= 2 and names == 1 and len(columns[0].cells) <= _FEW
        below: list[int] = blocks.pop()[names:] if few and not groups else []
        shown = [[columns[n] for n in block] for block in blocks]
        texts = [_block(each, _widths(each, names, width), groups) for each in shown]
        lines = [f"{columns[place].head}: {by_label(columns[0].cells, columns[place].cells)}" for place in below]
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
        marks = any(each.key == "metric" for each in self.columns) and not any(each.best for each in self.columns)
        plain = "Nothing is bold: no method is decided to be the best." if marks else ""
        comments = [line for line in [*self.title, *self.notes, plain, r"Needs \usepackage{booktabs}"] if line]
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
    match value:
        case Estimate():
            return [(key, value.mean), (f"{key}_half_width", value.half_width)]
        case TimeToTarget():
            others = [(f"{key}_reached", value.reached), (f"{key}_median", value.median)]
            return [*_fields(key, value.mean or NO_ESTIMATE), *others]
    return [(key, value)]


def estimate_data(value: Estimate | None) -> dict[str, object] | None:
    """A mean with its interval, for JSON."""
    return value and {"mean": value.mean, "half_width": value.half_width}


def target_data(found: TimeToTarget, unit: str) -> dict[str, object]:
    """When a target was reached, for JSON."""
    return {"reached": found.reached, unit: estimate_data(found.mean), "median": found.median}


def by_label(labels: Sequence[str], cells: Sequence[str]) -> str:
    """The cells of a column on one line, each after its row's label; one that all rows have, once."""
    each = [f"{label} {cell}" for label, cell in zip(labels, cells, strict=True)]
    return cells[0] if len(set(cells)) == 1 else ", ".join(each)


def _taken(widths: Iterable[int]) -> int:
    """The width of columns with the gaps between them."""
    return sum(each + len(_GAP) for each in widths) - len(_GAP)


def _least(column: Column) -> int:
    """The width of a column whose head is broken between words."""
    return max(0, *(len(escape(text)) for text in (*column.cells, *column.head.split())))


def _widths(columns: Sequence[Column], names: int, width: int) -> list[int]:
    """The widths of columns; if these are too wide, heads are broken between words, and then words are narrower."""
    widths = [max(_least(each), len(escape(each.head))) for each in columns]
    heads = [_least(each) for each in columns]
    least = [min(each, _NARROW) if columns[n].text and n >= names else each for n, each in enumerate(heads)]
    if _taken(least) > width:  # several blocks
        return [low if low < head else wide for wide, head, low in zip(widths, heads, least, strict=True)]
    for lowest in (heads, least):
        while _taken(widths) > width and widths != lowest:
            widths[max(range(len(widths)), key=lambda each: widths[each] - lowest[each])] -= 1
    return widths


def _block(columns: Sequence[Column], widths: Sequence[int], groups: Sequence[str]) -> str:
    """The rows of some columns, below a line for each group; heads and words have as many lines as they need."""
    lines: list[str] = []
    for row, cells in enumerate(zip(*((column.head, *column.cells) for column in columns), strict=True)):
        if row and groups and groups[row - 1 :][:1] != groups[row - 2 : row - 1]:
            lines.append(f"{escape(groups[row - 1])}:")
        parts = [
            textwrap.wrap(escape(cell), width) or [""] if len(cell) > width else [escape(cell)]
            for cell, width in zip(cells, widths, strict=True)
        ]
        for number in range(max(map(len, parts))):
            fitted = [
                f"{''.join(part[number : number + 1]):{'<' if column.text else '>'}{width}}"
                for column, part, width in zip(columns, parts, widths, strict=True)
            ]
            lines.append((_GAP * bool(groups) + _GAP.join(fitted)).rstrip())
    return "\n".join(lines)


def _filled(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    return textwrap.fill(line, width, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)


def _paragraph(lines: Sequence[str]) -> str:
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
