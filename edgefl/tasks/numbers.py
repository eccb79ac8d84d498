"""Checks of labels that are numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import WrongAnswer

MOST_CLASSES = 100_000
"""Classes or tokens; a larger label is not the number of a class."""


def whole_numbers(found: NDArray[Any], what: str, *, least: int = 0) -> NDArray[np.int64]:
    """An array of the numbers of classes or tokens as int64.

    Args:
        found: numbers.
        what: what they number, in messages.
        least: the smallest number allowed.

    Raises:
        WrongAnswer: one is no whole number, or is too small or too large.
    """
    if found.dtype.kind not in "fiub":
        raise WrongAnswer(f"expected whole numbers from {least}, the {what}, found {type_of(found)}")
    if not found.size:
        raise WrongAnswer("expected labels, found none")
    broken = ~np.isfinite(found) | (found != np.floor(found)) if found.dtype.kind == "f" else np.zeros((), bool)
    for wrong, expected in (
        (broken, f"whole numbers from {least}, the {what}"),
        ((found < least) | (found >= MOST_CLASSES), f"{what} from {least} to {MOST_CLASSES - 1}"),
    ):
        if wrong.any():
            place = np.unravel_index(int(wrong.argmax()), found.shape)
            raise WrongAnswer(f"expected {expected}, found {found[place]} in sample {place[0]}")
    return found.astype(np.int64)


def finite_numbers(found: NDArray[Any]) -> NDArray[np.float32]:
    """An array of numbers as float32.

    Raises:
        WrongAnswer: it has something else.
    """
    if found.dtype.kind not in "fiub":
        raise WrongAnswer(f"expected numbers, found {type_of(found)}")
    if not found.size:
        raise WrongAnswer("expected labels, found none")
    with np.errstate(over="ignore"):
        numbers = found.astype(np.float32)
    if not np.isfinite(numbers).all():
        place = np.argwhere(~np.isfinite(numbers))[0]
        raise WrongAnswer(f"expected finite numbers of float32, found {found[tuple(place)]} in sample {place[0]}")
    return numbers


def type_of(array: NDArray[Any]) -> str:
    """The type of an array in words.

    >>> type_of(np.array(["a"])), type_of(np.zeros(1, complex))
    ('the type text', 'the type complex128')
    """
    return f"the type {'text' if array.dtype.kind == 'U' else array.dtype}"
