"""Quantities with units: ``40 Mbit/s``, ``1.5 GB``, ``20 ms``, ``5 kJ``.

A quantity in a scenario or a profile is a number in the base unit (bit/s, bytes, seconds, joules, …) or a text with a
unit from the table below. Units are case-sensitive, because ``Mb`` and ``MB`` differ by a factor of eight. Decimal
prefixes are powers of 1000; ``KiB``, ``MiB``, ``GiB`` are powers of 1024.
"""

import difflib
import math
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from edgefl.errors import Note, UserError

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
    "grams_per_kwh": {"g/kWh": 1.0, "kg/kWh": 1e3, "g/MWh": 1e-3, "kg/MWh": 1.0, "t/MWh": 1e3},
    "euros_per_kwh": {f"{name}/{unit}": scale * each for name, scale in (("€", 1.0), ("EUR", 1.0), ("ct", 0.01))
                      for unit, each in (("kWh", 1.0), ("MWh", 1e-3))},
    "euros_per_gb": {f"{name}/{unit}": scale * each for name, scale in (("€", 1.0), ("EUR", 1.0), ("ct", 0.01))
                     for unit, each in (("GB", 1.0), ("MB", 1e3), ("TB", 1e-3))},
    "grams": {"mg": 1e-3, "g": 1.0, "kg": 1e3, "t": 1e6},
    "euros": {"€": 1.0, "EUR": 1.0, "ct": 0.01},
}  # fmt: skip
"""The units of each dimension, with their values in base units."""

_QUANTITY = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*((?:[^\W_\d]|€)\D*?)?\s*")


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
            raise UserError(f"expected {what} such as '{_EXAMPLES[dimension]}', found '{value}'")
        number, unit = float(match[1]), match[2]
        if unit is not None and unit not in UNITS[dimension]:
            raise UserError(f"unknown unit '{unit}' in '{value}'; {meant(unit, dimension, number)}")
        number *= UNITS[dimension][unit] if unit is not None else 1.0
    else:
        number = float(value)
    if not math.isfinite(number):
        raise UserError(f"expected finite {what}, found {value!r}")
    return number


def meant(unit: str, dimension: str, number: float | None = None) -> str:
    """A clause that suggests a unit, or a quantity for the ``number``, of the same size as another tool's unit.

    >>> meant("MBps", "bits_per_second"), meant("Mb", "bytes", 100.0), meant("m", "seconds")
    ("did you mean 'MB/s'?", "did you mean '12.5 MB'?", "did you mean 'min'?")
    """
    units = UNITS[dimension]
    if dimension == "joules" and (match := _CHARGE.fullmatch(unit)):
        hours = 3.7 * _SI[match[1].lower()] * (1.0 if number is None else number)
        return f"this is a charge: multiply it by the cell's volts; at 3.7 V it is {hours:.3g} Wh"
    found: list[str] = []
    for size in _sizes(unit.strip(), dimension):
        same = [name for name, scale in units.items() if math.isclose(scale, size)][:1]
        converted = [] if number is None else [spelt(float(f"{number * size:.4g}"), dimension)]
        found += same or converted
    if not found:
        # A slip of the pen keeps the prefix, and b and B apart.
        alike = [name for name in units if name[0] == unit[0] and all((k in name) == (k in unit) for k in "B/")]
        found = difflib.get_close_matches(unit, alike, n=1, cutoff=0.82)
    if not found:
        return f"expected one of: {', '.join(units)}"
    return f"did you mean {' or '.join(map(repr, found))}?"


_SI = {"": 1.0, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "m": 1e-3, "milli": 1e-3, "micro": 1e-6} | {
    prefix: 1e3**power
    for power, prefixes in enumerate(("k K kilo", "M mega", "G giga", "T tera", "P peta"), start=1)
    for prefix in prefixes.split()
}
_CHARGE = re.compile(r"(m?)A[ ·*-]?h", re.IGNORECASE)
_TIMES = {
    name: size
    for size, names in (
        (1e-9, "ns nsec nanosecond"), (1e-6, "us µs μs usec µsec μsec microsecond"),
        (1e-3, "ms msec millis millisecond"), (1.0, "s sec second"), (60.0, "min m minute"),
        (3600.0, "h hr hour"), (86400.0, "day d"), (604800.0, "week wk"),
    )
    for each in names.split()
    for name in ((each, f"{each}s") if len(each) > 1 and each[-1] != "s" else (each,))
}  # fmt: skip
_DATA = re.compile(r"((?:[kmgtp]i?|kilo|mega|giga|tera|[kmgt][ie]bi)?)-?(bits?|bytes?|octets?|b)(.*)", re.IGNORECASE)
_PER = re.compile(r"\s*(?:/|per\b|p(?=s))\s*([a-z]+)", re.IGNORECASE)
_POWER = re.compile(
    r"(m|u|µ|μ|k|K|M|G|milli|micro|kilo|mega|giga)?[ -]?(J|j|joules?|Ws|W|w|watts?)([·* -]?(?:h|H|hours?))?"
)
_FLOPS = re.compile(r"([kmgtp]?)flops?(/s|ps|/sec)?", re.IGNORECASE)


def _sizes(unit: str, dimension: str) -> list[float]:
    """The values, in the base unit, that a unit of another tool may have: one, two if it is ambiguous, or none."""
    if dimension == "seconds":
        return [_TIMES[unit.lower()]] if unit.lower() in _TIMES and unit not in {"M", "Ms", "MS"} else []
    if dimension.startswith("flops"):
        match = _FLOPS.fullmatch(unit)
        return [_SI[match[1].upper()]] if match and not (match[2] and dimension == "flops") else []
    if dimension in ("joules", "watts"):
        match = _POWER.fullmatch(unit)
        energy = match is not None and (match[2][0] in "Jj" or match[2] == "Ws" or bool(match[3]))
        if match is None or energy != (dimension == "joules"):
            return []
        return [_SI[match[1] or ""] * (3600.0 if match[3] else 1.0)]
    match = _DATA.fullmatch(unit)
    per = _PER.fullmatch(match[3]) if match and match[3] else None
    seconds = 1.0 if per is None else _TIMES.get(per[1].lower(), 0.0)
    if match is None or (match[3] and per is None) or not seconds or (per and dimension == "bytes"):
        return []
    prefix, what = match[1].lower(), match[2]
    base = 1024.0 if prefix[1:] in ("i", "ibi", "ebi") else 1e3
    scale = base ** ("kmgtp".index(prefix[0]) + 1 if prefix else 0) / seconds
    bits = [8.0 if what[1:2] in ("y", "Y", "c", "C") else 1.0]
    if len(what) == 1:
        # mb, mb/s and MBPS are written for both.
        lower = match[1][:1] in "mgt" and what == "b" and not unit.endswith("ps")
        bits = [1.0, 8.0] if match[1] and (lower or unit.endswith("PS")) else [8.0 if what == "B" else 1.0]
    return [scale * each / (8.0 if dimension.startswith("bytes") else 1.0) for each in bits]


_EXAMPLES = {
    "seconds": "20 ms", "bytes": "500 MB", "bits_per_second": "40 Mbit/s", "bytes_per_second": "25.6 GB/s",
    "flops": "5 TFLOP", "flops_per_second": "35 GFLOP/s", "joules": "5 kJ", "watts": "12.7 W",
    "grams_per_kwh": "400 g/kWh", "euros_per_kwh": "0.32 €/kWh", "euros_per_gb": "5 €/GB", "grams": "60 g",
    "euros": "0.15 €",
}  # fmt: skip

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
    unit = min(reached, key=lambda unit: len(f"{shown / units[unit]:.12g}".replace(".", "")))
    return f"{quantity / units[unit]:.12g} {unit}"


def slack(value: float) -> float:
    """How far two instants, or two sums, near ``value`` may differ and still be equal: the only tolerance of a run.

    Virtual times, joules and FLOPs are sums of float64 numbers, so those that are equal by hand differ by rounding
    errors. The tolerance is 10⁻⁹ (of seconds a nanosecond), or 10⁻¹⁰ of the value where that is more: the rounding
    errors of a million successive additions.
    """
    return max(1e-9, 1e-10 * abs(value))


def at_most(one: float, other: float) -> bool:
    """True if ``one <= other``, up to rounding.

    >>> 0.1 + 0.2 <= 0.3, at_most(0.1 + 0.2, 0.3), at_most(0.300001, 0.3)
    (False, True, False)
    """
    return one <= other + slack(other)


def without_unit(text: str) -> bool:
    """True if a quantity is a number alone."""
    return text.strip()[-1:].isdigit()


class InBaseUnit(float):
    """A quantity that was computed, or read before: nobody can have left out its unit."""

    @staticmethod
    def in_all(data: Any) -> Any:
        """The same data, of which each float is such a quantity."""
        if isinstance(data, dict):
            return {key: InBaseUnit.in_all(each) for key, each in data.items()}
        if isinstance(data, list):
            return [InBaseUnit.in_all(each) for each in data]
        return InBaseUnit(data) if isinstance(data, float) else data


Doubt = Callable[[float], str | None]
"""The unit that is probably meant by a number without one; None if it is plausible in the base unit."""


class _Reader:
    def __init__(self, dimension: str, doubt: Doubt) -> None:
        self.dimension, self.doubt = dimension, doubt

    def __call__(self, value: Any) -> float:
        if isinstance(value, Mapping):  # perhaps a part that may stand here too; else this is the error
            what = self.dimension.replace("_", " ")
            raise PydanticCustomError("quantity_type", f"Input should be {what} as a number or a text with a unit")
        try:
            number = parse(value, self.dimension)
        except UserError as error:
            raise ValueError(error.message) from None
        bare = without_unit(value) if isinstance(value, str) else not isinstance(value, InBaseUnit)
        if bare and number > 0 and (unit := self.doubt(number)) is not None:
            hint = f"did you mean '{value} {unit}'?"
            if unit not in UNITS[self.dimension]:
                hint = f"as {value} {unit}, {meant(unit, self.dimension, number)}"
            warnings.warn(f"{value} without a unit is {spelt(number, self.dimension)}; {hint}", Note, stacklevel=1)
        return number


def dimension_of(annotation: Any) -> str | None:
    """The dimension of a field's type, which may contain one of the types below at any depth.

    >>> dimension_of(Bytes | None), dimension_of(int)
    ('bytes', None)
    """
    if isinstance(annotation, BeforeValidator) and isinstance(annotation.func, _Reader):
        return annotation.func.dimension
    return next((found for each in get_args(annotation) if (found := dimension_of(each))), None)


def _validator(dimension: str, doubt: Doubt = lambda _: None) -> BeforeValidator:
    schema: Any = {
        "anyOf": [{"type": "number"}, {"type": "string", "examples": [_EXAMPLES[dimension]]}],
        "description": f"{dimension.replace('_', ' ')}; a number in the base unit or a text with a unit",
    }
    given = Annotated[Any, Field(json_schema_extra=schema)]
    return BeforeValidator(_Reader(dimension, doubt), json_schema_input_type=given)


def _zero_or_at_least_one(rate: float) -> float:
    # A rate such as 1e-9 bit/s is a mistake; transfers would take an extremely long virtual time.
    if 0 < rate < 1:
        raise ValueError(f"expected 0 or at least 1 bit/s, found {rate:g} bit/s; did you mean '{rate:g} Mbit/s'?")
    return rate


def _from(least: float, unit: str) -> Doubt:
    return lambda number: unit if number >= least else None


def _below(*units: tuple[float, str]) -> Doubt:
    """The unit of the first limit that a number is below."""
    return lambda number: next((unit for limit, unit in units if number < limit), None)


def _milliseconds(seconds: float) -> str | None:
    return "ms" if seconds >= 1000 and seconds % 900 and seconds.is_integer() else None


Seconds = Annotated[float, _validator("seconds"), Field(ge=0, le=1e10)]
"""At most about 300 years; to express never, use null."""
ShortSeconds = Annotated[float, _validator("seconds", _milliseconds), Field(ge=0, le=1e10)]
"""Of a part of a round."""
Latency = Annotated[float, _validator("seconds", _from(1, "ms")), Field(ge=0, le=1e10)]
StepSeconds = Annotated[float, _validator("seconds", _from(1, "ms")), Field(ge=0, le=1e10)]
OperatorSeconds = Annotated[float, _validator("seconds", _from(0.1, "us")), Field(ge=0, le=1e10)]
Bytes = Annotated[float, _validator("bytes"), Field(ge=0)]
TrafficBytes = Annotated[float, _validator("bytes", _below((1e5, "MB"))), Field(ge=0)]
MemoryBytes = Annotated[float, _validator("bytes", _below((65, "GB"), (1e5, "MB"), (1e7, "kB"))), Field(ge=0)]
_RATE = _validator("bits_per_second", _below((1001, "Mbit/s"), (1e5, "kbit/s")))
BitsPerSecond = Annotated[float, _RATE, Field(ge=0), AfterValidator(_zero_or_at_least_one)]
BytesPerSecond = Annotated[float, _validator("bytes_per_second", _below((1001, "GB/s"), (1e6, "MB/s"))), Field(ge=1)]
Flops = Annotated[float, _validator("flops", _below((1e6, "GFLOP"))), Field(ge=0)]
FlopsPerSecond = Annotated[float, _validator("flops_per_second", _below((1e6, "GFLOP/s"))), Field(ge=1)]
Joules = Annotated[float, _validator("joules"), Field(ge=0)]
BatteryJoules = Annotated[float, _validator("joules", _below((1e3, "Wh"), (1.5e4, "mAh"))), Field(ge=0)]
RadioJoules = Annotated[float, _validator("joules", _from(20, "mJ")), Field(ge=0)]
Watts = Annotated[float, _validator("watts", _from(1000, "mW")), Field(ge=0)]
RadioWatts = Annotated[float, _validator("watts", _from(20, "mW")), Field(ge=0)]
CarbonIntensity = Annotated[float, _validator("grams_per_kwh")]
EnergyPrice = Annotated[float, _validator("euros_per_kwh")]
TrafficPrice = Annotated[float, _validator("euros_per_gb")]
Grams = Annotated[float, _validator("grams")]
Euros = Annotated[float, _validator("euros")]
