"""Two bounds between which a figure of a device is drawn; if they are equal, one number is enough."""

from __future__ import annotations

from typing import Any, Self

from pydantic import model_validator

from edgefl.options import Options


class Bounds(Options):
    """``{low: 0.1, high: 0.4}``, with low <= high; subclasses define their meaning and limits."""

    low: float
    high: float

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"expected low <= high, found {self.low:g}, {self.high:g}")
        return self


def from_number(value: Any) -> Any:
    """Both bounds from one number; any other value unchanged.

    >>> from_number(0.2), from_number({"low": 0.1, "high": 0.4})
    ({'low': 0.2, 'high': 0.2}, {'low': 0.1, 'high': 0.4})
    """
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return {"low": value, "high": value} if plain else value
