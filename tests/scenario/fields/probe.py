"""What a probe is: a field, a change of it alone, and what must follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Changes = dict[str, Any]
"""Dotted paths to values, as ``--set`` takes them."""

Expected = Callable[[Any, Any], bool]
"""Whether what was seen before and after the change is as the field's description says."""


EASY: Changes = {"training.rounds": 5, "training.local.lr": 0.3, "training.local.epochs": 2}
"""Where training shows: accuracy rises from round to round, its moving average more slowly."""


class Probe(NamedTuple):
    """One proof that a field matters.

    Attributes:
        field: its path, as :func:`walk.fields` gives it.
        base: what the small scenario needs so that the field has something to act on.
        change: another value of the field, and what must change with it.
        expected: what must follow.
        observe: runs the scenario with changes.
    """

    field: str
    base: Changes
    change: Changes
    expected: Expected
    observe: Callable[[Changes], Any]


def probes(observe: Callable[[Changes], Any], rows: list[tuple[str, Changes, Changes, Expected]]) -> list[Probe]:
    """The rows of a table, all seen in the same way."""
    return [Probe(*row, observe) for row in rows]


def more(*names: str) -> Expected:
    """Each of these rises."""
    return lambda before, after: all(getattr(after, name) > getattr(before, name) for name in names)


def less(*names: str) -> Expected:
    """Each of these falls."""
    return lambda before, after: all(getattr(after, name) < getattr(before, name) for name in names)


def same(*names: str) -> Expected:
    """None of these changes, though something else does."""
    return lambda before, after: all(getattr(after, name) == getattr(before, name) for name in names)


def both(*expected: Expected) -> Expected:
    """All of it."""
    return lambda before, after: all(each(before, after) for each in expected)


def differs(before: Any, after: Any) -> bool:
    """Something is different: the description promises no direction."""
    return bool(before.events != after.events)


def says(text: str) -> Expected:
    """The scenario, fine before, is refused for this reason."""
    return lambda before, after: before == "" and text in after


def accepted(before: str, after: str) -> bool:
    """The scenario was refused, and is so no more."""
    return before != "" and after == ""


LATER, EARLIER = more("seconds"), less("seconds")
FARTHER, NEARER = more("moved"), less("moved")
"""How far training moves the model."""
MORE_JOULES = both(more("joules"), same("seconds"))
