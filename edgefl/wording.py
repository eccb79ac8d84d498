"""Grammar of messages that are composed of parts."""

from __future__ import annotations


def with_article(noun: str) -> str:
    """A noun with its indefinite article, chosen by the first letter.

    >>> with_article("accuracy"), with_article("smoothed accuracy"), with_article("ESP32-S3")
    ('an accuracy', 'a smoothed accuracy', 'an ESP32-S3')
    """
    return f"{'an' if noun[:1].lower() in tuple('aeiou') else 'a'} {noun}"
