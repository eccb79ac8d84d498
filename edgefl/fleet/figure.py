"""A figure of a device: one quantity, or bounds and a nominal value, as data sheets and measurements disagree."""

from typing import Any, Generic, Literal, Self, TypeVar

from pydantic import Field, model_validator

from edgefl.options import Options

Quantity = TypeVar("Quantity", bound=float)

Bound = Literal["low", "nominal", "high"]
"""A value of an uncertain figure, or of a result calculated from such figures."""


class Estimate(Options, Generic[Quantity]):
    """An uncertain figure: ``{low: 17 GB/s, nominal: 20 GB/s, high: 22 GB/s}``."""

    low: Quantity = Field(description="The lowest value that the sources allow.")
    nominal: Quantity = Field(description="The value used in calculations.")
    high: Quantity = Field(description="The highest value that the sources allow.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low <= self.nominal <= self.high:
            values = f"{self.low:g}, {self.nominal:g}, {self.high:g}"
            raise ValueError(f"expected low <= nominal <= high, found {values}")
        return self


def value(figure: float | Estimate[float], bound: Bound = "nominal") -> float:
    """The figure at one of its bounds; a plain quantity has the same value at all three.

    >>> value(Estimate[float](low=1, nominal=2, high=4), "high"), value(3.0, "high")
    (4.0, 3.0)
    """
    if type(figure) is float:
        return figure  # fast path for the most common case: isinstance with a model class takes five times as long
    return getattr(figure, bound) if isinstance(figure, Estimate) else figure


def scaled(figure: float | Estimate[float], factor: float) -> float | Estimate[float]:
    """The figure multiplied by a factor above 0; an uncertain one with all its bounds.

    >>> scaled(3.0, 2), scaled(Estimate[float](low=1, nominal=2, high=4), 0.5).high
    (6.0, 2.0)
    """
    if not isinstance(figure, Estimate):
        return figure * factor
    return figure.model_copy(update={bound: number * factor for bound, number in figure})


def opposite(bound: Bound) -> Bound:
    """The bound of a divisor that gives this bound of the quotient: the lowest time results from the highest speed."""
    return {"low": "high", "nominal": "nominal", "high": "low"}[bound]  # type: ignore[return-value]


def rounded(figure: float) -> float:
    """A fitted figure with four digits: more would suggest too much precision."""
    return float(f"{figure:.4g}")


def bounds_around(figure: float, factor: float) -> dict[str, float]:
    """A fitted figure as the data of an :class:`Estimate`, a factor of at least 1 below and above it.

    >>> bounds_around(20e9, 1.25)
    {'low': 16000000000.0, 'nominal': 20000000000.0, 'high': 25000000000.0}
    """
    return {"low": rounded(figure / factor), "nominal": rounded(figure), "high": rounded(figure * factor)}


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
