"""Prices as providers ship them; expected figures were computed with Vessim 0.16.0 and exact integrals in numpy."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from edgefl.errors import UserError
from edgefl.fleet.prices import Prices, integral

BOARD = [(0, 2.5), (600, 6.75), (4200, 3.0), (9000, 6.75), (10800, 0.0)]
PHONE = [(0, 0.25), (900, 4.0), (2700, 0.25), (7200, 4.0), (8100, 0.25), (10800, 0.0)]
DESKTOP = [(0, 45.0), (1800, 180.0), (3600, 45.0), (5400, 180.0), (10800, 0.0)]
"""Seconds and watts from then on."""

CARBON = [312, 305, 298, 291, 288, 290, 310, 345, 352, 330, 281, 236, 201, 178, 165, 170, 204, 268, 341, 388, 402, 391,
          362, 334]  # fmt: skip
EUROS = [62.1, 55.4, 49.0, 45.2, 44.8, 51.3, 78.9, 104.6, 98.2, 61.7, 22.4, 3.1, -8.6, -21.9, -15.0, 0.0, 18.7, 66.3,
         121.5, 146.8, 133.0, 109.4, 88.0, "n/e"]  # fmt: skip
AUTUMN = [102.6, 99.5, 95.6, 95.1, 66.1, 63.0, 59.1, 58.6, 26.8, 23.7, 19.8, 19.3, 7.5, 4.4, 0.5, 0.0, -4.2, -7.3,
          -11.2, -11.7, -17.5, -20.6, -24.5, -25.0]  # fmt: skip
EM = "Datetime (UTC),Zone id,Carbon intensity gCO₂eq/kWh (direct),Carbon intensity gCO₂eq/kWh (Life cycle)"
EM_BEFORE = EM.replace("Life cycle", "LCA").replace("intensity", "Intensity")
ENTSOE, OLDER = (
    '"MTU (CET/CEST)","Sequence","Day-ahead Price (EUR/MWh)"',
    '"MTU (CET/CEST)","Day-ahead Price [EUR/MWh]"',
)


def hourly(header: str) -> list[str]:
    return [header, *(f"2026-06-10 {hour:02}:00:00,DE,{each},{each + 37}" for hour, each in enumerate(CARBON))]


def spring() -> list[str]:
    """Hours of 29 March, on which there is no 2:00, each with a row of a later auction."""
    rows = [(hour, euros) for hour, euros in enumerate(EUROS) if hour != 2]
    days = [(f"29/03/2026 {hour:02}:00:00 - 29/03/2026 {hour + 1:02}:00:00", euros) for hour, euros in rows]
    return [ENTSOE, *(f'"{day}","Sequence {n}","{euros if n == 1 else 9}"' for day, euros in days for n in (1, 2))]


def autumn(*, marked: bool) -> list[str]:
    clocks = [(n // 4 - (n > 11), "CEST" if n < 12 else "CET", 15 * (n % 4)) for n in range(24)]
    times = [f"25/10/2026 {hour:02}:{minute:02}:00{f' ({zone})' * marked}" for hour, zone, minute in clocks]
    rows = zip(times, [*times[1:], times[-1]], AUTUMN, strict=True)
    return [ENTSOE, *(f'"{begin} - {end}","Without Sequence","{euros}"' for begin, end, euros in rows)]


def half_hours() -> list[str]:
    moments = [datetime(2026, 6, 10, 9, tzinfo=UTC) + timedelta(minutes=30 * n) for n in range(8)]
    both = zip((329, 325, 283, 275, 241, 241, 206, 195), ("321", "326", *["null"] * 6), strict=True)
    return [
        "from,to,forecast,actual,index",
        *(f"{at:%Y-%m-%dT%H:%MZ},,{f},{a}," for at, (f, a) in zip(moments, both, strict=True)),
    ]


def total(rows, tmp_path, start, watts=DESKTOP, name="energy", **options) -> float:
    (tmp_path / "series.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    given = {"file": str(tmp_path / "series.csv"), **options}
    price = getattr(Prices.model_validate({name: given}).rates(None, "", datetime.fromisoformat(start), None), name)
    return sum(power * integral(price, begin, end) for (begin, power), (end, _) in pairwise(watts)) / 3.6e6


@pytest.mark.parametrize(
    ("rows", "start", "expected"),
    [
        (spring(), "2026-03-29T00:30:00+01:00", 0.01979775),
        ([OLDER, *(f'"10.06.2021 {h:02}:00 - 10.06.2021 {h + 1:02}:00","{e}"' for h, e in enumerate(EUROS))],
         "2021-06-10T11:00:00+02:00", -0.00456075),
        (autumn(marked=True), "2026-10-25T01:20:00+02:00", 0.005988),
        (autumn(marked=False), "2026-10-25T01:20:00+02:00", 0.005988),
    ],
    ids=["spring", "older", "autumn", "autumn by order"],
)  # fmt: skip
def test_day_ahead_prices(rows, start, expected, tmp_path):
    assert total(rows, tmp_path, start) == pytest.approx(expected, rel=1e-9)


def test_carbon_intensities(tmp_path):
    def grams(rows, start, **options):
        return sum(total(rows, tmp_path, start, each, "carbon", **options) for each in (BOARD, PHONE, DESKTOP))

    direct = grams(hourly(EM), "2026-06-10T04:10:00Z")
    assert direct == pytest.approx(127.944125, rel=1e-9)
    assert grams(hourly(EM_BEFORE), "2026-06-10T06:10:00+02:00", column="direct") == direct
    assert grams(hourly(EM_BEFORE), "2026-06-10T04:10:00Z", column="life cycle") == pytest.approx(143.5989791667, 1e-9)
    assert grams(half_hours(), "2026-06-10T09:20:00Z") == pytest.approx(109.2587916667, rel=1e-9)
    assert grams(half_hours(), "2026-06-10T09:20:00Z", column="forecast") == pytest.approx(109.2723958333, rel=1e-9)
    assert grams(hourly(EM), "2026-06-10T22:30:00Z") == pytest.approx(135.2875833333, rel=1e-9)  # it repeats
    gap = [row for row in hourly(EM) if " 08:00" not in row and " 09:00" not in row]
    assert grams(gap, "2026-06-10T07:00:00Z") == pytest.approx(145.9709375, rel=1e-9)  # the value before holds


@pytest.mark.parametrize(
    ("start", "expected"), [("2026-06-10T00:00:00+02:00", 0.3492), ("2026-03-29T00:00:00+01:00", 0.3726)]
)
def test_a_tariff_follows_the_local_hour(start, expected):
    hours = {"hours": {"06:00": "0.34 €/kWh", "22:00": "21 ct/kWh"}, "timezone": "Europe/Berlin"}
    price = Prices.model_validate({"energy": hours}).rates(None, "", datetime.fromisoformat(start), None).energy
    assert 180 * integral(price, 0, 28800) / 3.6e6 == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("zone", "start", "minutes"),  # of three days, those from 2:45 on until 22:00
    [
        ("Australia/Sydney", "2026-10-04T00:00+10:00", 3465 - 15),  # no 2:00 to 3:00
        ("Pacific/Chatham", "2026-09-27T00:00+12:45", 3465 - 60),  # no 2:45 to 3:45
        ("Asia/Kathmandu", "2026-06-10T00:00+05:45", 3465),
    ],
)
def test_a_tariff_of_quarter_hours_follows_clocks_elsewhere(zone, start, minutes):
    begin = datetime.fromisoformat(start)
    prices = Prices.model_validate({"energy": {"hours": {"02:45": 1, "22:00": 0}, "timezone": zone}})
    days = (datetime(begin.year, begin.month, begin.day + 3, tzinfo=ZoneInfo(zone)) - begin).total_seconds()
    assert integral(prices.rates(None, "", begin, None).energy, 0, days) == pytest.approx(60 * minutes, rel=1e-9)


def test_a_file_of_two_columns_names_its_unit_only(tmp_path):
    rows = ["time;kg/kWh", "2026-06-10T00:00+05:30;0.2", "2026-06-10T01:00+05:30;", "2026-06-10T01:30+05:30;0.4"]
    expected = 180 * (200 * 1.25 + 400 * 0.5) / 1000 + 180 * 200 * 0.25 / 1000  # 2:00 to 2:15 is the first row again
    watts = [(0, 180.0), (7200, 0.0)]
    assert total(rows, tmp_path, "2026-06-10T00:15+05:30", watts, "carbon") == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda rows: [row.replace("2026-06-10 05", "2026-06-10 04") for row in rows], "one row for each time"),
        (lambda rows: [row.replace("345", "many") for row in rows], "expected a number"),
        (lambda rows: [rows[0].replace("(UTC)", ""), *rows[1:]], "offset from UTC"),
        (lambda rows: [row.replace("06-10", "06-11") for row in rows], "has the run's start"),
        (lambda rows: [rows[0].replace("direct", "own"), *rows[1:]], "expected one column"),
    ],
)
def test_what_cannot_be_meant_is_refused(change, named, tmp_path):
    with pytest.raises(UserError, match=named):
        total(change(hourly(EM)), tmp_path, "2026-06-10T04:10:00Z", name="carbon")
