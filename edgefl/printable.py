r"""Text from files and users, made safe to print.

Control characters move a terminal's cursor, change its title or its colours. Marks of writing direction reverse the
displayed text. Both are shown as escapes instead: ``\x1b``, ``\u202e``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from edgefl import limits

_MARKS = "\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"
"""Marks of writing direction, and separators that end a line only in some programs."""
_UNSAFE = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_MARKS}\ud800-\udfff]")
_ENDS = re.compile("[\t\n]")

_LONG = re.compile(rf"(?<!\w)'[^'\n]{{{limits.WORD_CHARACTERS - 1},}}'(?!\w)|\S{{{limits.WORD_CHARACTERS + 1},}}")


def printable(text: str) -> str:
    r"""The text with escapes for control characters, marks of writing direction, and bytes that are not UTF-8.

    Line ends and tabs stay. JSON text remains the same data: its escapes are also valid there, and characters below
    U+0020 do not occur in it.

    >>> print(printable("\x1b[31mred"), printable("\u202etxt.exe"), printable("\x9b\udcff"))
    \x1b[31mred \u202etxt.exe \u009b\udcff
    """
    return _UNSAFE.sub(_escape, text)


def printable_line(text: str) -> str:
    r"""The same, with escapes also for line ends and tabs.

    >>> print(printable_line("a\nb"))
    a\x0ab
    """
    return _ENDS.sub(_escape, printable(text))


def shortened(text: str) -> str:
    """A text for a message, without the middle of overlong words, quoted values and lines.

    >>> shortened("expected a seed, found " + "9" * 5000) == f"expected a seed, found {'9' * 99}…{'9' * 100}"
    True
    """
    words = _LONG.sub(lambda found: without_middle(found[0], limits.WORD_CHARACTERS), text)
    return "\n".join(without_middle(line, limits.LINE_CHARACTERS) for line in words.split("\n"))


def without_middle(text: str, characters: int) -> str:
    """A text of at most so many characters; the end often says as much as the beginning, as in a path.

    >>> without_middle("abcdefgh", 5), without_middle("abcde", 5)
    ('ab…gh', 'abcde')
    """
    if len(text) <= characters:
        return text
    end = characters // 2
    return f"{text[: characters - end - 1]}…{text[-end:]}"


def printable_data(data: Any) -> Any:
    """Plain data in which every text is :func:`printable`, the keys of mappings included."""
    if isinstance(data, str):
        return printable(data)
    if isinstance(data, Mapping):
        return {printable_data(key): printable_data(value) for key, value in data.items()}
    return [printable_data(each) for each in data] if isinstance(data, list | tuple) else data


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x20 else f"\\u{code:04x}"
