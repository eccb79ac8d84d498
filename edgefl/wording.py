"""Text for people: escapes, and the grammar of messages that are composed of parts."""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar

Each = TypeVar("Each")
Key = TypeVar("Key")

_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, marks of writing direction, separators of lines, and bytes that are not UTF-8."""


def escape(text: str, *, keep: str = "") -> str:
    r"""The text with escapes for characters that move a cursor, change colours or reverse text, except ``keep``.

    >>> print(escape("\x1b[31mred"), escape("\u202etxt.exe"), escape("a\nb"))
    \x1b[31mred \u202etxt.exe a\x0ab
    """
    return _UNSAFE.sub(lambda found: found[0] if found[0] in keep else _escaped(ord(found[0])), text)


def _escaped(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x20 else f"\\u{code:04x}"


def with_article(noun: str) -> str:
    """A noun with its indefinite article, chosen by the first letter; of abbreviations, by how it is spoken.

    >>> with_article("accuracy"), with_article("smoothed accuracy"), with_article("ESP32-S3"), with_article("RMSE")
    ('an accuracy', 'a smoothed accuracy', 'an ESP32-S3', 'an RMSE')
    """
    vowels = "AEFHILMNORSX" if noun.isupper() else "AEIOUaeiou"
    return f"{'an' if noun[:1] in tuple(vowels) else 'a'} {noun}"


def listed(names: Sequence[str]) -> str:
    """The names as a list in a sentence.

    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def counted(number: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "round"), counted(2, "round")
    ('1 round', '2 rounds')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def without_method(message: str, label: str) -> str:
    """A message about the end of a run without the method's label at its start.

    >>> without_method("method 'fedavg', round 1, selection: KeyError: 3", "fedavg")
    'round 1, selection: KeyError: 3'
    """
    return message.removeprefix(f"method '{label}'").lstrip(", ")


def by_run(sentences: dict[str, list[str]]) -> list[str]:
    """The sentences of several runs, each with the names of its runs in front, if it is not one of all runs.

    >>> by_run({"lr=0.1": ["One seed."], "lr=0.2": ["b wins.", "One seed."]})
    ['One seed.', 'lr=0.2: b wins.']
    """
    runs_of = grouped((line, run) for run, lines in sentences.items() for line in lines)
    return [line if len(of) == len(sentences) else f"{', '.join(of)}: {line}" for line, of in runs_of.items()]


def span(counts: Collection[int]) -> str:
    """The least and the largest count, as ``1–3``; one number if all are equal."""
    return "–".join(map(str, sorted({min(counts), max(counts)})))


def grouped(pairs: Iterable[tuple[Key, Each]]) -> dict[Key, list[Each]]:
    """The second parts of pairs by their first parts, in order.

    >>> grouped([("a", 1), ("b", 2), ("a", 3)])
    {'a': [1, 3], 'b': [2]}
    """
    found: dict[Key, list[Each]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found
