"""Grams of CO2 and euros of a kWh and of a GB: constants, tariffs by the local hour, and series from files.

A price is a step function: a value holds from its instant until the next one, without interpolation. Emissions and
costs are the integral of power over it: grams = ∫ P(t) c(t) dt / 3.6e6, with P in watts and c in g/kWh.
"""

import itertools
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cache
from typing import Annotated, Any, NamedTuple, Protocol, Self
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from edgefl.csv_table import CsvTable, csv_table
from edgefl.errors import UserError, locating
from edgefl.files import read_text
from edgefl.input_file import InputFile, digest_of_file, find_input
from edgefl.options import Options
from edgefl.units import UNITS, CarbonIntensity, EnergyPrice, TrafficPrice, meant
from edgefl.validation import as_validator, shown


@as_validator
def _checked_start(value: Any) -> str:
    text = value.isoformat() if isinstance(value, datetime) else str(value)
    try:
        known = datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        known = False
    if not known:
        raise UserError(f"expected a date, a time and the offset from UTC, as 2026-03-28T18:00+01:00, found {text}")
    return text


Start = Annotated[str, BeforeValidator(_checked_start, json_schema_input_type=str)]
"""The instant at which a run begins."""


@as_validator
def _checked_zone(name: str) -> str:
    zone_of(name)
    return name


TimeZone = Annotated[str, AfterValidator(_checked_zone)]
"""The name of a time zone of the IANA data base."""


def zone_of(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UserError(f"unknown time zone '{name}'; expected a name such as Europe/Berlin or UTC") from None


class Price(Protocol):
    """A price of a kWh over a run, by the seconds since its start."""

    def value(self, seconds: float) -> float:
        """The price at this time, the new one at a change."""

    def next_change(self, seconds: float) -> float:
        """The first moment after ``seconds`` at which it may change; infinite if it never does."""


def integral(price: Price, begin: float, end: float) -> float:
    """The integral of a price from ``begin`` to ``end``, in its unit times seconds.

    >>> integral(Steps(-1800.0, [0.0, 3600.0], [200.0, 300.0], 7200.0), 0.0, 9000.0)
    2340000.0
    """
    total = 0.0
    while begin < end:
        until = min(max(price.next_change(begin), math.nextafter(begin, math.inf)), end)
        total += price.value(begin) * (until - begin)
        begin = until
    return total


class Steps(NamedTuple):
    """A series that repeats after its ``period``; its ``times`` count from its ``first`` row, from 0 on, ascending."""

    first: float = 0.0  # seconds since the run's start, which are negative if the series begins earlier
    times: list[float] = [0.0]
    values: list[float] = [0.0]
    period: float = math.inf

    def value(self, seconds: float) -> float:
        return self.values[self._place(seconds)[1]]

    def next_change(self, seconds: float) -> float:
        began, step = self._place(seconds)
        return began + (self.times[step + 1] if step + 1 < len(self.times) else self.period)

    def _place(self, seconds: float) -> tuple[float, int]:
        """When the present period began, and the step in it."""
        cycle = 0 if self.period == math.inf else math.floor((seconds - self.first) / self.period)
        began = self.first + (cycle * self.period if cycle else 0.0)
        return began, max(bisect_right(self.times, seconds - began) - 1, 0)


class LocalHours:
    """A tariff by the local clock: its values hold from their seconds of the day on, the last one over midnight.

    Hours of a run are elapsed hours, so the day on which the clock goes forward has 23.
    """

    def __init__(self, seconds: list[float], values: list[float], zone: tzinfo, start: datetime) -> None:
        self._seconds, self._values, self._zone, self._start = seconds, values, zone, start.astimezone(UTC)
        self._known = (0.0, -1.0, 0.0)  # from when to when which value holds

    def value(self, seconds: float) -> float:
        return self._step(seconds)[2]

    def next_change(self, seconds: float) -> float:
        return self._step(seconds)[1]

    def _step(self, seconds: float) -> tuple[float, float, float]:
        if not self._known[0] <= seconds < self._known[1]:
            instant = self._start + timedelta(seconds=seconds)
            local = instant.astimezone(self._zone)
            day = _seconds_of_day(local)
            place = bisect_right(self._seconds, day)
            left = (self._seconds[place] if place < len(self._seconds) else self._seconds[0] + 86400) - day
            if (instant + timedelta(seconds=left)).astimezone(self._zone).utcoffset() != local.utcoffset():
                left = min(left, 1800 - day % 1800)  # the clock is changed before; at a half or a full hour
            end = round((instant - self._start).total_seconds() + left, 6)
            self._known = seconds, max(end, math.nextafter(seconds, math.inf)), self._values[place - 1]
        return self._known


def _seconds_of_day(local: datetime) -> float:
    return (local.replace(tzinfo=None) - datetime(local.year, local.month, local.day)).total_seconds()


Key = tuple[str, str, str | None, str | None, str]
"""The path and the digest of a file; column, unit and dimension of its values."""


class SeriesSpec(Options):
    """A series from a file, in the columns of Electricity Maps, ENTSO-E, or the GB Carbon Intensity API, or your own."""

    file: InputFile = Field(description="A CSV file; its first column, or a known one, has the times.")
    column: str | None = Field(
        None, description="A part of the name of the values' column, such as `life cycle` or `forecast`."
    )
    unit: str | None = Field(None, description="The unit of the values if the name of their column does not say it.")

    def start(self, start: datetime, zone: tzinfo, dimension: str) -> Price:
        path = find_input(self.file)
        with locating(file=str(path)):
            times, values, end = _read(str(path), digest_of_file(path), self.column, self.unit, dimension)
            if not times[0] <= start < end:
                covers = " to ".join(each.isoformat().removesuffix("+00:00") + "Z" for each in (times[0], end))
                raise UserError(f"expected a series that has the run's start, {start.isoformat()}, found {covers}")
        since = [(each - times[0]).total_seconds() for each in times]
        single = end.year == datetime.max.year
        period = math.inf if single else (end - times[0]).total_seconds()
        return Steps((times[0] - start).total_seconds(), since, values, period)


class HoursSpec(Options):
    """A tariff by the local hour."""

    hours: dict[str, EnergyPrice] = Field(
        min_length=1, description="From which local time on which price holds: {'06:00': 0.34 €/kWh, '22:00': 0.21 €/kWh}."
    )
    timezone: TimeZone | None = Field(None, description="Their time zone; null: that of the entry of the fleet.")

    @model_validator(mode="after")
    def _times(self) -> Self:
        for text in self.hours:
            if re.fullmatch(r"([01]?\d|2[0-3]):[0-5]\d", text) is None:
                raise ValueError(f"expected local times such as '06:00', found '{text}'")
        return self

    def start(self, start: datetime, zone: tzinfo, dimension: str) -> Price:
        parts = [(text.split(":"), price) for text, price in self.hours.items()]
        steps = sorted((3600.0 * int(hour) + 60.0 * int(minute), price) for (hour, minute), price in parts)
        own = zone if self.timezone is None else zone_of(self.timezone)
        return LocalHours([seconds for seconds, _ in steps], [price for _, price in steps], own, start)


def _form(value: Any) -> str:
    given = value if isinstance(value, Mapping) else vars(value) if isinstance(value, Options) else {}
    if given and given.keys() <= {"down", "up"}:
        return "ways"
    return "hours" if "hours" in given else "file" if "file" in given else "links" if given else "number"


def _named(value: Any) -> Any:
    """A text that names a file as a series."""
    is_file = isinstance(value, str) and value.lower().endswith((".csv", ".tsv", ".txt"))
    return {"file": value} if is_file else value


_File = Annotated[SeriesSpec, Tag("file")]
_FORM = Discriminator(_form)
AnyCarbon = Annotated[Annotated[CarbonIntensity, Tag("number")] | _File, _FORM, BeforeValidator(_named)]
AnyEnergy = Annotated[
    Annotated[EnergyPrice, Tag("number")] | _File | Annotated[HoursSpec, Tag("hours")], _FORM, BeforeValidator(_named)
]


class Ways(Options):
    """Prices of traffic by direction, as a device sees it."""

    down: TrafficPrice = Field(0.0, description="Of what it receives.")
    up: TrafficPrice = Field(0.0, description="Of what it sends.")


_Way = Annotated[TrafficPrice, Tag("number")] | Annotated[Ways, Tag("ways")]
AnyTraffic = Annotated[_Way | Annotated[dict[str, Annotated[_Way, _FORM]], Tag("links")], _FORM]


class Rates(NamedTuple):
    """What a client, or the server, pays and emits: by kWh over the run, and by GB in each direction."""

    carbon: Price = Steps()
    energy: Price = Steps()
    down: float = 0.0
    up: float = 0.0

    def next_change(self, seconds: float) -> float:
        return min(self.carbon.next_change(seconds), self.energy.next_change(seconds))


class Prices(Options):
    """What energy emits and costs, and what traffic costs."""

    carbon: AnyCarbon | None = Field(None, description="CO2 of the grid, such as 400 g/kWh, or a CSV file.")
    energy: AnyEnergy | None = Field(None, description="Of a kWh, such as 0.32 €/kWh, a CSV file, or by local hours.")
    traffic: AnyTraffic | None = Field(
        None, description="Of a GB (10⁹ bytes), such as 5 €/GB; by direction `{down, up}`, or by link."
    )

    def over(self, own: "Prices | None") -> "Prices":
        """These prices, with those in their place that an entry of the fleet has of its own."""
        names = () if own is None else ("carbon", "energy", "traffic")
        found = {name: each for name in names if (each := getattr(own, name)) is not None}
        return Prices.model_construct(**{**{name: getattr(self, name) for name in Prices.model_fields}, **found})

    def follows_the_clock(self) -> bool:
        return any(isinstance(each, SeriesSpec | HoursSpec) for each in (self.carbon, self.energy))

    def rates(self, link: str, start: datetime | None, zone: tzinfo) -> Rates:
        """The prices of a client with this link in a run; UserError if a series cannot be read or begins too late."""
        prices: dict[str, Price] = {}
        for name, dimension in (("carbon", "grams_per_kwh"), ("energy", "euros_per_kwh")):
            given = getattr(self, name)
            if isinstance(given, float | int):
                prices[name] = Steps(values=[given])
            elif given is not None:
                assert start is not None
                with locating(field=f"prices.{name}"):
                    prices[name] = given.start(start, zone, dimension)
        traffic = self.traffic.get(link, 0.0) if isinstance(self.traffic, dict) else self.traffic or 0.0
        down, up = (traffic.down, traffic.up) if isinstance(traffic, Ways) else (traffic, traffic)
        return Rates(**prices, down=down, up=up)


class FleetPrices(Prices):
    """The prices of all clients, but for those that an entry of the fleet has of its own; and the server's."""

    server: Prices | None = Field(None, description="The server's, whose grams and euros have keys of their own.")

    def of_server(self) -> "FleetPrices | None":
        """Those of a run whose only client is the server."""
        return self.server and FleetPrices.model_construct(**vars(self.server), server=None)


_MISSING = ("", "-", "n/e", "n/a", "nan", "null", "none")
_STAMP = re.compile(r"(\d\d)[./](\d\d)[./](\d{4}) (\d\d):(\d\d)(?::(\d\d))?(?: ?\((UTC|[CEW]ES?T)\))?")
_HOURS_AHEAD = {"UTC": 0, "WET": 0, "WEST": 1, "CET": 1, "CEST": 2, "EET": 2, "EEST": 3}
_USUAL = {"grams_per_kwh": ("(direct)", "actual", "forecast"), "euros_per_kwh": ("day-ahead price",)}
_ALIKE = {"life cycle": "lca"}


@cache
def _read(path: str, _digest: str, column: str | None, unit: str | None, dimension: str) -> tuple[
    list[datetime], list[float], datetime
]:
    """The rows of a series, and its end: the last one holds for as long as the shortest one before it."""
    table = csv_table(read_text(path, what="a CSV file"))
    names = [name.casefold() for name in table.header]
    time = next((names.index(each) for each in names if each.startswith(("mtu (", "datetime (utc)", "from"))), 0)
    place = _column(table, names, column, dimension)
    other = names.index("forecast") if names[place] == "actual" and "forecast" in names else place
    scale = _scale(table.header[place], unit, dimension)
    instant_of, numbers = _clock(names[time]), [table.numbers(each) for each in (place, other)]
    sequence = names.index("sequence") if "sequence" in names else None
    rows: dict[datetime, float | None] = {}
    for line, cells in table.rows:
        row = [*cells, *[""] * (len(names) - len(cells))]
        if sequence is not None and row[sequence].casefold() not in ("", "without sequence", "sequence 1", "1"):
            continue  # a later auction of the same hours
        text, read = next(((row[at], read) for at, read in zip((place, other), numbers, strict=True)
                           if row[at].casefold() not in _MISSING), ("", numbers[0]))  # fmt: skip
        instant = instant_of(row[time], text == "", line)
        if instant is None:
            continue
        number = float(read(text)) if text else None
        if number is not None and not math.isfinite(number):
            raise UserError(f"line {line}: {table.header[place]}: expected a number, found {shown(text)}")
        if instant in rows:
            raise UserError(f"line {line}: expected one row for each time, found {shown(row[time])} again")
        rows[instant] = None if number is None else scale * number
    known = {instant: value for instant, value in sorted(rows.items()) if value is not None}
    if not known:
        raise UserError(f"expected numbers in the column '{table.header[place]}', found none")
    instants = sorted(rows)
    steps = [later - earlier for earlier, later in itertools.pairwise(instants)]
    end = instants[-1] + min(steps) if steps else datetime.max.replace(tzinfo=UTC)
    return list(known), list(known.values()), end


def _column(table: CsvTable, names: list[str], column: str | None, dimension: str) -> int:
    """The column of the values."""
    for part in _USUAL[dimension] if column is None else (column.casefold(), _ALIKE.get(column.casefold(), column)):
        found = [number for number, name in enumerate(names) if part == name] or [
            number for number, name in enumerate(names) if part in name
        ]
        if len(found) == 1:
            return found[0]
    raise UserError(f"expected one column with {column or 'values'}, which `column` names, of: {', '.join(table.header)}")


def _scale(header: str, unit: str | None, dimension: str) -> float:
    """The factor of a column's values."""
    name = re.sub(r"co.?2?.?eq?", "", header.casefold())
    given = unit or ("g/kWh" if name in ("actual", "forecast") else None)
    known = UNITS[dimension]
    if given is None:
        found = [each for each in known if re.search(rf"(?<!\w){re.escape(each.casefold())}", name)]
        given = max(found, key=len, default=None)
    if given not in known:
        hint = f"found '{header}'" if given is None else meant(given, dimension)
        raise UserError(f"expected the unit of the values in the name of their column, or as `unit`; {hint}")
    return known[given]


def _clock(header: str) -> Callable[[str, bool, int], datetime | None]:
    """A function of a cell, whether its row has no value, and its line: the instant at which the row begins.

    Dates in words of days first are of the clock in the header; the hour that occurs twice in autumn is marked, or in
    summer time first. ``None``: a row without a value at a time that does not exist.
    """
    zone = re.search(r"\((\w+)(?:/(\w+))?\)", header)
    clocks = [_HOURS_AHEAD.get((each or "").upper()) for each in (zone.groups() if zone else ())]
    offsets = [hours for hours in reversed(clocks) if hours is not None]  # summer time first
    seen: set[str] = set()

    def instant(text: str, empty: bool, line: int) -> datetime | None:
        if (match := _STAMP.match(text)) is None:
            try:
                found = datetime.fromisoformat(text)
            except ValueError:
                raise UserError(f"line {line}: expected a date with a time, found {shown(text)}") from None
            if found.tzinfo is None and offsets != [0]:
                raise UserError(f"line {line}: expected times with an offset from UTC, found {shown(text)}")
            return found.replace(tzinfo=found.tzinfo or UTC).astimezone(UTC)
        day, month, year, hour, minute, second, mark = match.groups()
        local = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second or 0), tzinfo=UTC)
        hours = offsets if mark is None else [_HOURS_AHEAD[mark]]
        if not hours:
            raise UserError(f"line {line}: expected the clock in the name of the column, as MTU (CET/CEST)")
        possible = [local - timedelta(hours=each) for each in hours]
        if len(possible) == 2:
            possible = [each for each, summer in zip(possible, (True, False), strict=True) if _is_summer(each) == summer]
        if not possible:
            if empty:
                return None
            raise UserError(f"line {line}: expected a time that the clock shows, found {shown(text)}")
        again = local.isoformat() in seen
        seen.add(local.isoformat())
        return possible[-1 if again else 0]

    return instant


def _is_summer(instant: datetime) -> bool:
    """True in the summer time of Europe: from the last Sunday of March to that of October, at 1:00 UTC."""
    last = [datetime(instant.year, month, 31, 1, tzinfo=UTC) for month in (3, 10)]
    began, ended = (each - timedelta(days=(each.weekday() + 1) % 7) for each in last)
    return began <= instant < ended


def local_seconds(start: datetime, zone: str | None) -> float:
    """The seconds of the local clock since 1970 at an instant; by the offset of ``start`` if there is no zone."""
    local = start if zone is None else start.astimezone(zone_of(zone))
    return (local.replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds()


def own_zone(start: datetime | None, zone: str | None) -> tzinfo:
    return zone_of(zone) if zone else timezone.utc if start is None or start.tzinfo is None else start.tzinfo
