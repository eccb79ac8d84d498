"""Quantities as readable text: ``12.3 s``, ``4.5 min``, ``120 MB``, ``3.2 kJ``, ``95.2 ± 0.3 %``."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from edgefl.record.figures import QUANTITIES
from edgefl.report.statistics import Estimate


class Unit(NamedTuple):
    """A unit for printing: ``number = quantity / scale``, with a number of decimals."""

    symbol: str
    scale: float
    decimals: int = 0

    def number(self, quantity: float) -> str:
        """The number without its unit, with at least two significant digits.

        A zero has no decimals.

        >>> seconds = unit_for([16.0], "seconds")
        >>> [seconds.number(each) for each in (16.0, 1.52, 0.5, 0.4271, 0.0004271, 4.2e-9)]
        ['16.0', '1.5', '0.5', '0.43', '0.00043', '4.2e-9']
        """
        return _written(quantity / self.scale, self.decimals, digits=2)

    def words(self, quantity: float, half_width: float | None = None) -> str:
        """The number with its unit, and with half the width of its interval if it has one."""
        spread = f"± {self.interval(half_width, quantity)}" if half_width else ""
        return " ".join(filter(None, [self.number(quantity), spread, self.symbol]))

    def interval(self, half_width: float, mean: float) -> str:
        """Half the width of an interval, with the decimals of its mean and at least one significant digit.

        >>> seconds = unit_for([102.0], "seconds")
        >>> seconds.interval(0.5123, mean=102.0), seconds.interval(0.5123, mean=0.4271)
        ('0.5', '0.51')
        """
        number = self.number(mean)
        decimals = 0 if "e" in number else len(number.partition(".")[2])
        return _written(half_width / self.scale, max(self.decimals, decimals), digits=1)


def _written(figure: float, decimals: int, *, digits: int) -> str:
    """A figure with this number of decimals, or as many as its significant digits need."""
    if not figure:
        return "0"
    if math.isfinite(figure) and abs(figure) >= _LONG:
        return f"{figure:.2e}".replace("e+", "e")
    text = f"{figure:.{decimals}f}"
    if not math.isfinite(figure) or math.isclose(float(text), figure):
        return text
    short = f"{figure:.{digits - 1}e}"
    needed = digits - 1 - int(short.partition("e")[2])
    return short.replace("e-0", "e-") if needed > _DECIMALS_READ else f"{figure:.{max(decimals, needed)}f}"


_LONG = 1e9
"""Larger figures are written with a power of ten."""

_DECIMALS_READ = 6
"""Figures that need more decimals are written with a power of ten."""

LADDERS: dict[str, list[tuple[str, float]]] = {
    "fraction": [("%", 0.01)],
    "rounds": [("rounds", 1.0)],
    "seconds": [("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("min", 60.0), ("h", 3600.0), ("days", 86400.0)],
    "bytes": [("B", 1.0), ("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12)],
    "joules": [("J", 1.0), ("kJ", 1e3), ("MJ", 1e6), ("GJ", 1e9)],
    "flops": [("FLOP", 1.0), ("kFLOP", 1e3), ("MFLOP", 1e6), ("GFLOP", 1e9), ("TFLOP", 1e12), ("PFLOP", 1e15)],
}
# Larger units are used from two of them on: "75.3 s" is easier to read than "1.26 min".
FROM = {"min": 120.0, "h": 7200.0, "days": 172800.0}


def unit_for(quantities: Sequence[float], dimension: str) -> Unit:
    """One unit for a whole column, in which its smallest number can be read; the largest has three significant digits.

    The quantities are in the base unit of their dimension: ``fraction`` (printed in percent), ``count`` and ``number``
    (without a unit), ``rounds``, ``seconds``, ``bytes``, ``joules`` or ``flops``.

    >>> unit_for([3.0e8, 1.25e9], "bytes")
    Unit(symbol='GB', scale=1000000000.0, decimals=2)
    """
    sizes = [abs(quantity) for quantity in quantities if quantity]
    largest = max(sizes, default=0.0)
    if dimension == "fraction":
        return Unit("%", 0.01, 1)
    if dimension == "count":
        return Unit("", 1.0)
    if dimension == "number":
        return Unit("", 1.0, max(0, min(_DECIMALS_READ, 2 - math.floor(math.log10(largest)))) if largest else 0)
    kind = QUANTITIES[dimension].unit if dimension in QUANTITIES else dimension  # else it is a symbol, such as g
    larger = [(kind, 1.0), (f"k{kind}", 1e3), (f"M{kind}", 1e6)]
    ladder = LADDERS.get(dimension) or LADDERS.get(kind) or larger
    least = ("s", 1.0) if dimension == "seconds" and not largest else ladder[0]
    steps = [step for step in ladder if largest >= FROM.get(*step)] or [least]
    while len(steps) > 1 and min(sizes) < 10 * steps[-2][1] and largest < 1e5 * steps[-2][1]:
        steps.pop()
    symbol, scale = steps[-1]
    figure = largest / scale
    decimals = 0 if figure == 0 or symbol == "B" else max(0, min(_DECIMALS_READ, 2 - math.floor(math.log10(figure))))
    return Unit(symbol, scale, decimals)


def quantity(value: float, dimension: str) -> str:
    """One quantity with its unit.

    >>> quantity(75.31, "seconds"), quantity(500e6, "bytes"), quantity(5000, "joules"), quantity(0.8, "fraction")
    ('75.3 s', '500 MB', '5.00 kJ', '80.0 %')
    """
    return unit_for([value], dimension).words(value)


def limit(value: float, dimension: str) -> str:
    """A round number that a user chose, without trailing zeros.

    >>> limit(60.0, "seconds"), limit(5000.0, "joules"), limit(0.8, "fraction"), limit(0.925, "fraction")
    ('60 s', '5 kJ', '80 %', '92.5 %')
    """
    unit = unit_for([value], dimension)
    return f"{float(f'{value / unit.scale:.6g}'):.6g} {unit.symbol}".rstrip()


def estimate(value: Estimate, dimension: str) -> str:
    """A mean with half the width of its interval and its unit.

    >>> estimate(Estimate(0.952, 0.0034, 3), "fraction"), estimate(Estimate(75.31, None, 1), "seconds")
    ('95.2 ± 0.3 %', '75.3 s')
    """
    return unit_for([value.mean], dimension).words(value.mean, value.half_width)
