"""Grammar of messages that are composed of parts."""

from __future__ import annotations


def with_article(noun: str) -> str:
    """A noun with its indefinite article, chosen by the first letter; of abbreviations, by how it is spoken.

    >>> with_article("accuracy"), with_article("smoothed accuracy"), with_article("ESP32-S3"), with_article("RMSE")
    ('an accuracy', 'a smoothed accuracy', 'an ESP32-S3', 'an RMSE')
    """
    vowels = "AEFHILMNORSX" if noun.isupper() else "AEIOUaeiou"
    return f"{'an' if noun[:1] in tuple(vowels) else 'a'} {noun}"
