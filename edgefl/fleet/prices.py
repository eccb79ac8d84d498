"""Grams of CO2 and euros of a kWh and of a GB: constants, tariffs by the local hour, and series from files.

A price is a step function: a value holds from its instant until the next one, without interpolation. Emissions and
costs are the integral of power over it: grams = ∫ P(t) c(t) dt / 3.6e6, with P in watts and c in g/kWh.
"""

import itertools
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from typing import Annotated, Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag

from edgefl.csv_table import csv_table
from edgefl.errors import UserError, locating
from edgefl.files import read_text
from edgefl.input_file import InputFile, digest_of_file, find_input
from edgefl.options import Options
from edgefl.step_trace import StepTrace
from edgefl.units import UNITS, CarbonIntensity, EnergyPrice, TrafficPrice
from edgefl.validation import as_validator, shown


@as_validator
def _checked_start(value: Any) -> str:
    try:
        text = value.isoformat() if isinstance(value, datetime) else str(value)
        if datetime.fromisoformat(text).tzinfo is not None:
            return text
    except ValueError:
        pass
    raise UserError(f"expected a date, a time and the offset from UTC, as 2026-03-28T18:00+01:00, found {value}")


Start = Annotated[str, BeforeValidator(_checked_start, json_schema_input_type=str)]
"""The instant at which a run begins."""


def zone_of(name: str | None, start: datetime | None = None) -> tzinfo:
    """The time zone of a name of the IANA data base; without one that of the run's start."""
    try:
        return ZoneInfo(name) if name else (start and start.tzinfo) or UTC
    except (KeyError, ValueError, OSError):
        raise UserError(f"unknown time zone '{name}'; expected a name such as Europe/Berlin or UTC") from None


TimeZone = Annotated[str, AfterValidator(as_validator(lambda name: str(zone_of(name))))]


class LocalHours(NamedTuple):
    """A tariff by the local clock: ``values`` from ``times`` (seconds of the day) on, the last over midnight."""

    times: Sequence[float]
    values: Sequence[float]
    zone: tzinfo
    start: datetime

    def value(self, seconds: float) -> float:
        return self.values[bisect_right(self.times, self._clock(seconds)[1]) - 1]

    def next_change(self, seconds: float) -> float:
        local, day = self._clock(seconds)
        left = (*self.times, self.times[0] + 86400)[bisect_right(self.times, day)] - day
        instant = local.astimezone(UTC)
        if (instant + timedelta(seconds=left)).astimezone(self.zone).utcoffset() != local.utcoffset():
            left = min(left, 900 - day % 900)  # the clock is changed before, at a quarter of an hour
        return (instant - self.start).total_seconds() + left

    def _clock(self, seconds: float) -> tuple[datetime, float]:
        """The local time, and its seconds of the day."""
        local = (self.start.astimezone(UTC) + timedelta(seconds=seconds)).astimezone(self.zone)
        return local, (local - local.replace(hour=0, minute=0, second=0, microsecond=0)).total_seconds()


Price = StepTrace | LocalHours


def integral(price: Price, begin: float, end: float) -> float:
    """The integral of a price from ``begin`` to ``end``, in its unit times seconds.

    >>> integral(StepTrace([0.0, 3600.0], [200.0, 300.0], period=7200.0).shifted(1800.0), 0.0, 9000.0)
    2160000.0
    """
    total = 0.0
    while begin < end:
        until = min(price.next_change(begin), end)
        total += price.value(begin) * (until - begin)
        begin = until
    return total


class SeriesSpec(Options):
    """A series from a file, in the columns of Electricity Maps, ENTSO-E, the GB Carbon Intensity API, or your own."""

    file: InputFile = Field(description="A CSV file; its first column, or a known one, has the times.")
    column: str | None = Field(None, description="A part of the name of the values' column, such as `life cycle`.")
    unit: str | None = Field(None, description="The unit of the values if the name of their column does not say it.")

    def start(self, start: datetime, _zone: tzinfo, dimension: str) -> Price:
        path = find_input(self.file)
        with locating(file=str(path)):
            rows, end = _read(str(path), digest_of_file(path), self.column, self.unit, dimension)
            first = min(rows)
            if not (first <= start and (end is None or start < end)):
                covers = f"{first:%Y-%m-%dT%H:%MZ} to {end or first:%Y-%m-%dT%H:%MZ}"
                raise UserError(f"expected a series that has the run's start, {start.isoformat()}, found {covers}")
        times = [(each - first).total_seconds() for each in rows]
        period = None if end is None else (end - first).total_seconds()
        return StepTrace(times, list(rows.values()), period=period).shifted((start - first).total_seconds())


@as_validator
def _checked_time(text: str) -> str:
    if re.fullmatch(r"([01]?\d|2[0-3]):[0-5]\d", text) is None:
        raise UserError(f"expected a local time such as '06:00', found '{text}'")
    return text


_Time = Annotated[str, AfterValidator(_checked_time)]


class HoursSpec(Options):
    """A tariff by the local hour."""

    hours: dict[_Time, EnergyPrice] = Field(min_length=1, description="By local time: {'06:00': 0.34 €/kWh, …}.")
    timezone: TimeZone | None = Field(None, description="Their time zone; null: that of the entry of the fleet.")

    def start(self, start: datetime, zone: tzinfo, _dimension: str) -> Price:
        clock = {text: [float(part) for part in text.split(":")] for text in self.hours}
        times, values = zip(*sorted((3600 * clock[e][0] + 60 * clock[e][1], self.hours[e]) for e in clock), strict=True)
        return LocalHours(times, values, zone_of(self.timezone) if self.timezone else zone, start)


class CarbonHours(HoursSpec):
    """The CO2 of a grid by the local hour."""

    hours: dict[_Time, CarbonIntensity] = Field(min_length=1, description="By local time: {'12:00': 165 g/kWh, …}.")


class Ways(Options):
    """Prices of traffic by direction, as a device sees it."""

    down: TrafficPrice = Field(0.0, description="Of what it receives.")
    up: TrafficPrice = Field(0.0, description="Of what it sends.")


def _form(value: Any) -> str:
    given = value if isinstance(value, Mapping) else vars(value) if isinstance(value, Options) else {}
    named = [each for each in ("hours", "file") if each in given]
    return "ways" if given and given.keys() <= {"down", "up"} else [*named, "links" if given else "number"][0]


def _named(value: Any) -> Any:
    """A text that names a file as a series."""
    return {"file": value} if isinstance(value, str) and value.lower().endswith((".csv", ".tsv", ".txt")) else value


_FORM, _FILE = Discriminator(_form), BeforeValidator(_named)
_Series = Annotated[SeriesSpec, Tag("file")]
_Way = Annotated[TrafficPrice, Tag("number")] | Annotated[Ways, Tag("ways")]


class Rates(NamedTuple):
    """What a client, or the server, emits and pays: by kWh over the run, and by GB in each direction."""

    carbon: Price
    energy: Price
    down: float
    up: float

    def of_joule(self, seconds: float) -> NDArray[np.float64]:
        """Grams and euros of a joule at a time."""
        return np.array([self.carbon.value(seconds), self.energy.value(seconds)]) / 3.6e6

    def of_watt(self, begin: float, end: float) -> NDArray[np.float64]:
        """Grams and euros of a watt from ``begin`` to ``end``."""
        return np.array([integral(self.carbon, begin, end), integral(self.energy, begin, end)]) / 3.6e6


class Bills(NamedTuple):
    """The prices of each group of the fleet, and the server's."""

    groups: Sequence[Rates]
    server: Rates


class Prices(Options):
    """What energy emits and costs, and what traffic costs."""

    carbon: (
        Annotated[
            Annotated[CarbonIntensity, Tag("number")] | _Series | Annotated[CarbonHours, Tag("hours")], _FORM, _FILE
        ]
        | None
    ) = Field(None, description="CO2 of the grid, such as 400 g/kWh, a CSV file, or by local hours.")
    energy: (
        Annotated[Annotated[EnergyPrice, Tag("number")] | _Series | Annotated[HoursSpec, Tag("hours")], _FORM, _FILE]
        | None
    ) = Field(None, description="Of a kWh, such as 0.32 €/kWh, a CSV file, or a tariff by local hours.")
    traffic: Annotated[_Way | Annotated[dict[str, Annotated[_Way, _FORM]], Tag("links")], _FORM] | None = Field(
        None, description="Of a GB (10⁹ bytes), such as 5 €/GB; by direction `{down, up}`, or by link."
    )

    def rates(self, own: "Prices | None", link: str, start: datetime | None, zone: str | None) -> Rates:
        """A client's prices in a run, its ``own`` before these; UserError if a series has none at the start."""
        given = {
            name: value for of in (self, own or Prices()) for name in PRICES if (value := getattr(of, name)) is not None
        }
        prices: list[Price] = []
        for name, dimension in (("carbon", "grams_per_kwh"), ("energy", "euros_per_kwh")):
            price = given.get(name, 0.0)
            if not isinstance(price, SeriesSpec | HoursSpec):
                prices.append(StepTrace([0.0], [price]))
                continue
            if start is None:
                raise UserError("follows the clock; expected when the run begins, in `start`", field=name)
            with locating(field=name):
                prices.append(price.start(start, zone_of(zone, start), dimension))
        traffic = given.get("traffic", 0.0)
        way = traffic.get(link, 0.0) if isinstance(traffic, dict) else traffic
        down, up = (way.down, way.up) if isinstance(way, Ways) else (way, way)
        return Rates(prices[0], prices[1], down, up)


PRICES = tuple(Prices.model_fields)


class FleetPrices(Prices):
    """The prices of all clients, but for those that an entry of the fleet has of its own; and the server's."""

    server: Prices | None = Field(None, description="The server's, whose grams and euros have keys of their own.")


_MISSING = ("", "-", "n/e", "n/a", "nan", "null", "none")
_STAMP = re.compile(r"(\d\d)[./](\d\d)[./](\d{4}) (\d\d):(\d\d)(?::(\d\d))?(?: ?\((\w+)\))?")
_CLOCKS = {
    "(utc)": "UTC",
    "(wet/west)": "Europe/Lisbon",
    "(cet/cest)": "Europe/Brussels",
    "(eet/eest)": "Europe/Athens",
}
_USUAL = {"grams_per_kwh": ("(direct)", "actual", "forecast"), "euros_per_kwh": ("day-ahead price",)}


@cache
def _read(
    path: str, _digest: str, column: str | None, unit: str | None, dimension: str
) -> tuple[dict[datetime, float], datetime | None]:
    """The values of a series, ascending, and its end: the last row holds for as long as the shortest one."""
    table = csv_table(read_text(path, what="a CSV file"))
    names = [name.casefold() for name in table.header]
    time = next((names.index(each) for each in names if each.startswith(("mtu (", "datetime (utc)", "from"))), 0)
    place = _column(names, column, dimension)
    # A half-hour that is not over has a forecast only.
    places = [place, names.index("forecast")] if names[place] == "actual" and "forecast" in names else [place]
    scale, instant_of, numbers = _scale(names[place], unit, dimension), _clock(names[time]), table.numbers(place)
    sequence = names.index("sequence") if "sequence" in names else None
    rows: dict[datetime, float] = {}
    for line, cells in table.rows:
        row = [*cells, *[""] * (len(names) - len(cells))]
        if sequence is not None and row[sequence].casefold() not in ("", "without sequence", "sequence 1", "1"):
            continue  # a later auction of the same hours
        text = next((row[each] for each in places if row[each].casefold() not in _MISSING), None)
        with locating(field=f"line {line}"):
            instant = instant_of(row[time])
            number = math.nan if text is None else float(numbers(text))
            if text is not None and not math.isfinite(number):
                raise UserError(f"expected a number in {table.header[place]}, found {shown(text)}")
            if instant is None and text is not None:
                raise UserError(f"expected a time of the clock in {table.header[time]}, found {shown(row[time])}")
            if instant in rows:
                raise UserError(f"expected one row for each time, found {shown(row[time])} again")
        if instant is not None:
            rows[instant] = scale * number
    known = {instant: value for instant, value in sorted(rows.items()) if not math.isnan(value)}
    if not known:
        raise UserError(f"expected numbers in the column {table.header[place]}, found none")
    steps = [later - earlier for earlier, later in itertools.pairwise(sorted(rows))]
    return known, max(rows) + min(steps) if steps else None


def _column(names: list[str], column: str | None, dimension: str) -> int:
    """The column of the values."""
    parts = _USUAL[dimension] if column is None else (column.casefold(),)
    for part in (*parts, *(["(lca)"] if parts == ("life cycle",) else [])):
        found = [name for name in names if name == part] or [name for name in names if part in name]
        if len(found) == 1:
            return names.index(found[0])
    if column is None and len(names) == 2:
        return 1
    expected = f"expected one column with {column or 'values'}, which `column` names"
    raise UserError(f"{expected}; found {', '.join(names)}")


def _scale(name: str, unit: str | None, dimension: str) -> float:
    """The factor of a column's values, by the unit in its name."""
    text = unit or ("g/kWh" if name in ("actual", "forecast") else re.sub(r"co.?2?.?eq?", "", name))
    known = [e for e in UNITS[dimension] if re.search(rf"(?<!\w){re.escape(e.casefold())}", text.casefold())]
    if not known:
        units = ", ".join(UNITS[dimension])
        raise UserError(f"expected the unit of the values in {name} as `unit`, one of {units}, found {unit}")
    return UNITS[dimension][max(known, key=len)]


def _clock(header: str) -> Callable[[str], datetime | None]:
    """A function of a cell: the instant at which its row begins; ``None`` for a time that the clock does not show.

    Dates with the day first are of the header's clock; an hour that occurs twice is marked, or in summer time first.
    """
    zone = next((ZoneInfo(name) for clock, name in _CLOCKS.items() if clock in header), None)
    seen: set[datetime] = set()

    def instant(text: str) -> datetime | None:
        match, mark = _STAMP.match(text), None
        try:
            if match is None:
                local = datetime.fromisoformat(text)
            else:
                *parts, mark = match.groups()
                day, month, year, hour, minute, second = (int(each or 0) for each in parts)
                local = datetime(year, month, day, hour, minute, second)
        except ValueError:
            raise UserError(f"expected a date with a time, found {shown(text)}") from None
        if local.tzinfo is not None:
            return local.astimezone(UTC)
        if zone is None:
            raise UserError(f"expected times with an offset from UTC, found {shown(text)}")
        both = [local.replace(tzinfo=zone, fold=fold) for fold in (0, 1)]  # summer time first
        possible = [each.astimezone(UTC) for each in both if mark is None or each.tzname() == mark]
        possible = [each for each in possible if each.astimezone(zone).replace(tzinfo=None) == local]
        again = local in seen
        seen.add(local)
        return possible[-1 if again else 0] if possible else None

    return instant


def local_seconds(start: datetime, zone: str | None) -> float:
    """The seconds of the local clock since 1970 at an instant."""
    return start.astimezone(zone_of(zone, start)).replace(tzinfo=UTC).timestamp()
