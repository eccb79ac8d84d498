"""Grammar of messages that are composed of parts."""

from __future__ import annotations

from collections.abc import Sequence


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


def without_method(message: str, label: str) -> str:
    """A message about the end of a run without the method's label at its start.

    >>> without_method("method 'fedavg', round 1, selection: KeyError: 3", "fedavg")
    'round 1, selection: KeyError: 3'
    """
    return message.removeprefix(f"method '{label}'").lstrip(", ")
