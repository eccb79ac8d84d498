"""Quantities with units: ``40 Mbit/s``, ``1.5 GB``, ``20 ms``, ``5 kJ``.

A quantity in a scenario or a profile is a number in the base unit (bit/s, bytes, seconds, joules, …) or a text with a
unit from the table below. Units are case-sensitive, because ``Mb`` and ``MB`` differ by a factor of eight. Decimal
prefixes are powers of 1000; ``KiB``, ``MiB``, ``GiB`` are powers of 1024.
"""

import math
import re
import warnings
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, BeforeValidator, Field

from edgefl.errors import Note, UserError, nearest

_DECIMAL = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}


def _scaled(unit: str, prefixes: dict[str, float], factor: float = 1.0) -> dict[str, float]:
    return {f"{prefix}{unit}": scale * factor for prefix, scale in prefixes.items()}


UNITS: dict[str, dict[str, float]] = {
    "seconds": {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "day": 86400.0, "days": 86400.0},
    "bytes": {**_scaled("B", _DECIMAL), **_scaled("B", _BINARY)},
    "bits_per_second": {
        **_scaled("bit/s", _DECIMAL),
        **_scaled("bps", _DECIMAL),
        **_scaled("B/s", _DECIMAL, 8.0),
        **_scaled("B/s", _BINARY, 8.0),
    },
    "bytes_per_second": {**_scaled("B/s", _DECIMAL), **_scaled("B/s", _BINARY)},
    "flops": _scaled("FLOP", _DECIMAL),
    "flops_per_second": {**_scaled("FLOP/s", _DECIMAL), **_scaled("FLOPS", _DECIMAL)},
    "joules": {"mJ": 1e-3, **_scaled("J", _DECIMAL), "mWh": 3.6, "Wh": 3600.0, "kWh": 3.6e6},
    "watts": {"mW": 1e-3, **_scaled("W", _DECIMAL)},
}
"""The units of each dimension, with their values in base units."""

_QUANTITY = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(\S.*?)?\s*")


def parse(value: object, dimension: str) -> float:
    """A quantity in its base unit, from a number in this unit, or a text such as ``"40 Mbit/s"``.

    Raises:
        UserError: the value is not a finite number, or its unit is not of this dimension (a key of :data:`UNITS`).

    >>> parse("40 Mbit/s", "bits_per_second"), parse("1.5 GiB", "bytes"), parse(3, "seconds")
    (40000000.0, 1610612736.0, 3.0)
    >>> parse("40 mbit/s", "bits_per_second")
    Traceback (most recent call last):
    ...
    edgefl.errors.UserError: unknown unit 'mbit/s' in '40 mbit/s'; did you mean 'Mbit/s'?
    """
    what = dimension.replace("_", " ")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise UserError(f"expected {what} as a number or a text with a unit, found {value!r}")
    if isinstance(value, str):
        match = _QUANTITY.fullmatch(value)
        if match is None:
            raise UserError(f"expected {what} such as '{_example(dimension)}', found '{value}'")
        number, unit = float(match[1]), match[2]
        if unit is not None and unit not in UNITS[dimension]:
            raise UserError(f"unknown unit '{unit}' in '{value}'; {_meant(unit, dimension)}")
        number *= UNITS[dimension][unit] if unit is not None else 1.0
    else:
        number = float(value)
    if not math.isfinite(number):
        raise UserError(f"expected finite {what}, found {value!r}")
    return number


def _meant(unit: str, dimension: str) -> str:
    """A clause that suggests a unit; for an amount where a rate is expected, the same unit per second."""
    rate = f"{unit}/s"
    if rate not in UNITS[dimension]:
        return nearest(unit, UNITS[dimension])
    bits = f"{unit.removesuffix('B')}bps"
    other = f", or '{bits}' for bits" if unit.endswith("B") and bits in UNITS[dimension] else ""
    return f"did you mean '{rate}'{other}?"


def _example(dimension: str) -> str:
    return {
        "seconds": "20 ms",
        "bytes": "500 MB",
        "bits_per_second": "40 Mbit/s",
        "bytes_per_second": "25.6 GB/s",
        "flops": "5 TFLOP",
        "flops_per_second": "35 GFLOP/s",
        "joules": "5 kJ",
        "watts": "12.7 W",
    }[dimension]


_READ_ONLY = re.compile(r"days?|mWh|.*bps|.*FLOPS")
"""Not used for output."""


def spelt(quantity: float, dimension: str, *, like: float | None = None) -> str:
    """A quantity (in the base unit) as text that :func:`parse` can read, in the unit that needs the fewest digits.

    The unit is that of the quantity ``like``, if it is given.

    >>> spelt(35.2e9, "flops_per_second"), spelt(2.0**33, "bytes"), spelt(12.06, "watts"), spelt(68400, "joules")
    ('35.2 GFLOP/s', '8 GiB', '12.06 W', '19 Wh')
    >>> spelt(0.5, "watts"), spelt(0.5, "watts", like=1.4)
    ('500 mW', '0.5 W')
    """
    units = {
        unit: scale
        for unit, scale in UNITS[dimension].items()
        if not _READ_ONLY.fullmatch(unit) and not (dimension == "bits_per_second" and unit.endswith("B/s"))
    }
    shown = quantity if like is None else like
    reached = [unit for unit, scale in units.items() if scale <= abs(shown)]
    if not reached:
        least = 1.0 if shown == 0 else min(units.values())
        reached = [unit for unit, scale in units.items() if scale == least]
    unit = min(reached, key=lambda unit: len(_digits(shown / units[unit])))
    return f"{quantity / units[unit]:.12g} {unit}"


def _digits(number: float) -> str:
    return f"{number:.12g}".replace(".", "")


def slack(value: float) -> float:
    """How far two instants, or two sums, near ``value`` may differ and still be equal: the only tolerance of a run.

    Virtual times, joules and FLOPs are sums of float64 numbers, so those that are equal by hand differ by rounding
    errors. The tolerance is 10⁻⁹ (of seconds a nanosecond), or 10⁻¹⁰ of the value where that is more: the rounding
    errors of a million successive additions.
    """
    return max(1e-9, 1e-10 * abs(value))


def at_most(one: float, other: float) -> bool:
    """True if ``one <= other``, up to rounding.

    >>> 0.1 + 0.7 + 0.1 <= 0.9 - 1e-16, at_most(0.1 + 0.7 + 0.1, 0.9 - 1e-16), at_most(0.900001, 0.9)
    (False, True, False)
    """
    return one <= other + slack(other)


class _Reader:
    def __init__(self, dimension: str, meant: str, doubtful: range) -> None:
        self.dimension, self.meant, self.doubtful = dimension, meant, doubtful

    def __call__(self, value: Any) -> float:
        try:
            number = parse(value, self.dimension)
        except UserError as error:
            raise ValueError(error.message) from None
        if type(value) is int and value in self.doubtful:
            message = f"{value} without a unit is {spelt(number, self.dimension)}; did you mean '{value} {self.meant}'?"
            warnings.warn(message, Note, stacklevel=1)
        return number


def dimension_of(annotation: Any) -> str | None:
    """The dimension of a field's type, which may contain one of the types below at any depth.

    >>> dimension_of(Bytes | None), dimension_of(int)
    ('bytes', None)
    """
    if isinstance(annotation, BeforeValidator) and isinstance(annotation.func, _Reader):
        return annotation.func.dimension
    return next((found for each in get_args(annotation) if (found := dimension_of(each))), None)


def _validator(dimension: str, meant: str = "", doubtful: range = range(0)) -> BeforeValidator:
    schema: Any = {
        "anyOf": [{"type": "number"}, {"type": "string", "examples": [_example(dimension)]}],
        "description": f"{dimension.replace('_', ' ')}; a number in the base unit or a text with a unit",
    }
    given = Annotated[Any, Field(json_schema_extra=schema)]
    return BeforeValidator(_Reader(dimension, meant, doubtful), json_schema_input_type=given)


def _zero_or_at_least_one(rate: float) -> float:
    # A rate such as 1e-9 bit/s is a mistake; transfers would take an extremely long virtual time.
    if 0 < rate < 1:
        raise ValueError(f"expected 0 or at least 1 bit/s, found {rate:g} bit/s")
    return rate


Seconds = Annotated[float, _validator("seconds"), Field(ge=0, le=1e10)]
"""At most about 300 years; to express never, use null."""
Latency = Annotated[float, _validator("seconds", "ms", range(6, 10**9)), Field(ge=0, le=1e10)]
Bytes = Annotated[float, _validator("bytes"), Field(ge=0)]
MemoryBytes = Annotated[float, _validator("bytes", "GB", range(1, 1000)), Field(ge=0)]
_RATE = _validator("bits_per_second", "Mbit/s", range(1, 1000))
BitsPerSecond = Annotated[float, _RATE, Field(ge=0), AfterValidator(_zero_or_at_least_one)]
BytesPerSecond = Annotated[float, _validator("bytes_per_second"), Field(ge=1)]
Flops = Annotated[float, _validator("flops"), Field(ge=0)]
FlopsPerSecond = Annotated[float, _validator("flops_per_second"), Field(ge=1)]
Joules = Annotated[float, _validator("joules"), Field(ge=0)]
Watts = Annotated[float, _validator("watts"), Field(ge=0)]
