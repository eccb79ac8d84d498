"""Pieces of HTML. Every text is escaped by :func:`text`, because names and labels may contain any character."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from edgefl.errors import UserError
from edgefl.report.formats import html_text

text = html_text


def table(caption: str, headers: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """A table that scrolls horizontally if it is wider than the screen.

    Args:
        caption: printed above the table and read by screen readers.
        headers: one for each column.
        rows: cells as plain texts.
        words: how many of the first columns contain words; the others contain numbers, aligned to the right.
    """

    def kind(column: int) -> str:
        return "" if column < words else ' class="number"'

    head = "".join(f'<th scope="col"{kind(column)}>{text(name)}</th>' for column, name in enumerate(headers))
    body = "".join(
        "<tr>" + "".join(f"<td{kind(column)}>{text(cell)}</td>" for column, cell in enumerate(row)) + "</tr>"
        for row in rows
    )
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{text(caption)}"><table>'
        f"<caption><span>{text(caption)}</span></caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def prose(words: str) -> str:
    """A sentence as HTML, without a line break between a number and its sign or unit.

    >>> prose("95.2 ± 0.3 %").count(" ")
    0
    """
    held = re.sub(r" (?=[±\[])|(?<=±) ", "\u00a0", words)
    return text(re.sub(r"(?<=[\d\]]) (?=(%|[kMGT]?(B|J|s|FLOP|min|h|days)\b))", "\u00a0", held))


def paragraph(words: str) -> str:
    """One paragraph of plain text."""
    return f"<p>{prose(words)}</p>"


def note(words: str) -> str:
    """One paragraph in smaller letters, for additional information."""
    return f'<p class="note">{prose(words)}</p>'


def figure(name: str, described: str) -> str:
    """The element of one drawing, with a description for screen readers."""
    return f'<figure><div id="{text(name)}" class="drawing" role="img" aria-label="{text(described)}"></div></figure>'


def switch(name: str, question: str, choices: Sequence[tuple[str, str]]) -> str:
    """Radio buttons in one row; the first is chosen."""
    buttons = "".join(
        f'<label><input type="radio" name="{text(name)}" value="{text(value)}"{" checked" * (not number)}>'
        f"<span>{text(words)}</span></label>"
        for number, (value, words) in enumerate(choices)
    )
    return f'<fieldset class="switch"><legend>{text(question)}</legend>{buttons}</fieldset>'


def choice(name: str, question: str, choices: Sequence[tuple[str, str]]) -> str:
    """A drop-down list."""
    options = "".join(f'<option value="{text(value)}">{text(words)}</option>' for value, words in choices)
    return f'<label class="choice">{text(question)} <select id="{text(name)}">{options}</select></label>'


def embedded(data: Any) -> str:
    r"""Data as JSON for a script element, escaped so that it cannot end the element.

    >>> embedded({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'
    """
    try:
        written = json.dumps(data, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise UserError("cannot be drawn: a figure of this run is not finite") from None
    for sign in "<>&\u2028\u2029":
        written = written.replace(sign, f"\\u{ord(sign):04x}")
    return written
