"""The times of a trace that cannot be meant: numbers of another unit, dates, mostly gaps, or a summary at the end."""

import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from statistics import fmean, median
from typing import Literal, NamedTuple

TimeFormat = Literal["s", "ms", "us", "ns", "min", "h", "day", "iso", "YYYY.MM.DD_HH.MM.SS", "YYYYMMDDHHMMSS"]

TIME_UNITS: Mapping[TimeFormat, tuple[Decimal, str]] = {
    "ns": (Decimal("1e-9"), r"ns|nsecs?|nano\w*"),
    "us": (Decimal("1e-6"), r"[uµμ]s|[uµμ]secs?|mi[ck]ro\w*"),
    "ms": (Decimal("1e-3"), r"ms|msecs?|mill?i\w*"),
    "s": (Decimal(1), r"s|secs?|seconde?s?|sekunden?|segundos?"),
    "min": (Decimal(60), r"mins?|minut\w*"),
    "h": (Decimal(3600), r"h|hrs?|hours?|stunden?|heures?|horas?"),
    "day": (Decimal(86400), r"(?<!of )(?:days?|tage?|jours?|dias?)"),
}
"""Seconds of each unit, and the words for it in the names of columns."""

LEAST_CHANGE_SECONDS = 1e-3
"""Mean time between two changes of a capacity; with less, simulating the changes takes longer than all else."""

LATEST = 1e10
"""Seconds since 1970, in the year 2286; no clock is later."""

USUAL_STEP, LONG_STEP = 60.0, 600.0
"""Seconds: a longer step than the second is one of :data:`_STEPS`, or has another unit, whose step is then usual."""

RARE = 100.0
"""A step that is so many times the median one is a gap."""

_DAY = r"(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])"
_DATE = re.compile(rf"(19[7-9]|20\d)\d{_DAY}(([01]\d|2[0-3])([0-5]\d){{0,2}})?|\d\d{_DAY}([01]\d|2[0-3])([0-5]\d){{2}}")
"""A date of the years 1970 to 2099 as one number, with or without hours, minutes and seconds."""

_STEPS = [900.0, 1200.0, 1800.0, *(3600.0 * hours for hours in range(1, 25))]


class Clock(NamedTuple):
    """The times of a trace in a table."""

    column: str
    form: TimeFormat
    first: float  # seconds
    moments: list[float]  # the different times of all rows since the first one, ascending, seconds

    def refused(self, times: list[float], rates: list[float]) -> str | None:
        """What is wrong with times that cannot be meant, of which these and their rates are read; None for others."""
        gaps = [later - earlier for earlier, later in itertools.pairwise(self.moments)]
        if not gaps or not times:
            return None
        usual = median(gaps)
        repeated = {time for time, count in Counter(times).items() if count > 1}
        shared = max((gap for gap, moment in zip(gaps, self.moments, strict=False) if moment in repeated), default=0.0)
        why = self._other_format(usual) if self.form in TIME_UNITS else None
        if why is None and shared > USUAL_STEP:
            why = f"rows of one time would share {_shown(shared)}; give each row its own time"
        elif why is None and _summary(times, rates, usual):
            why = "the last row has the mean or the sum of all rates: remove a summary at the end"
        elif why is None and sum(gap for gap in gaps if gap > max(RARE * usual, USUAL_STEP)) > self.moments[-1] / 2:
            why = "most of the trace would be gaps; make a trace of each part (group), or remove a summary at the end"
        if why is None:
            return None
        steps = f"steps of {_shown(usual)} and a longest gap of {_shown(max(gaps))}"
        return f"{_shown(self.moments[-1] - self.moments[0] + gaps[-1])}, {steps}, which cannot be meant: {why}"

    def doubted(self, rates: list[float]) -> str | None:
        """What times or rates may be that are read as they are; ``rates`` are those of the rows that are read."""
        if len(self.moments) < 2 or not rates:
            return None
        if (
            len(rates) > 5
            and min(rates) < 0.9 * max(rates)
            and math.isclose(rates[-1], fmean(rates[:-1]), rel_tol=1e-3)
        ):
            return "the last rate is the mean of the others; remove the row if it is a summary"
        usual = median(later - earlier for earlier, later in itertools.pairwise(self.moments))
        minutes, milliseconds = 1440 * usual, 1000 * usual
        days = 3e4 < self.first < 8e4 and abs(minutes - max(1, round(minutes))) < 1e-3 < milliseconds % 1 < 0.999
        if self.form == "s" and days:
            return f"{self.column}: steps of {_shown(usual)}; are they days of a spreadsheet? (time_format: day)"
        return None

    def _other_format(self, usual: float) -> str | None:
        """What numbers are that cannot have the unit of :attr:`form`, with this usual step in seconds."""
        first, moments, form = self.first, self.moments, self.form
        factor = float(TIME_UNITS[form][0])
        words = " ".join(re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-zµμ]+", self.column)).lower()
        named = next((unit for unit, (_, names) in TIME_UNITS.items() if re.search(rf"\b(?:{names})\b", words)), None)
        if named not in {None, form}:
            return f"they are {named} by the name of the column (time_format: {named})"
        dates = _dates([round((first + moment) / factor) for moment in moments], usual / factor)
        if dates is not None:
            return dates
        units = {unit: float(scale) / factor for unit, (scale, _) in TIME_UNITS.items() if scale <= 1 or unit == form}

        def possible(unit: TimeFormat, longest: float) -> bool:
            step = units[unit] * usual
            known = unit == named or any(math.isclose(step, each, rel_tol=0.01) for each in _STEPS)
            return step >= LEAST_CHANGE_SECONDS and (step <= longest or known) and units[unit] * first <= LATEST

        dated = [unit for unit in units if units[unit] * first >= 1e9 and possible(unit, LONG_STEP)]
        if (possible(form, LONG_STEP) and not (dated and usual < 0.01)) or (usual < LEAST_CHANGE_SECONDS and not dated):
            return None
        likely = dated or [unit for unit in units if possible(unit, USUAL_STEP)]
        meant = ""
        if likely and form not in likely:
            period = units[likely[-1]] * (2 * moments[-1] - moments[-2] - moments[0])
            meant = (
                f"they seem to be {likely[-1]} (time_format: {likely[-1]}), with a period of {_shown(period)}; if not, "
            )
        return f"{meant}write dates (time_format: iso)"


def _summary(times: list[float], rates: list[float], usual: float) -> bool:
    """True if the last row, or both last ones, have the sum of all rates, or their mean at a time like no other."""
    steps = [later - earlier for earlier, later in itertools.pairwise(times)]
    odd = [step < 0.01 * usual or step > 10 * usual for step in steps]
    for rows in range(max(5, len(rates) - 2), len(rates)):
        before, total = rates[:rows], sum(rates[:rows])
        likely = [total] * (total > 3 * max(before)) + [total / rows] * (odd[rows - 1] and not any(odd[: rows - 1]))
        if min(before) < 0.9 * max(before) and all(any(abs(r - t) < 0.05 * t for t in likely) for r in rates[rows:]):
            return True
    return False


def _shown(seconds: float) -> str:
    return f"{seconds:.4g} s" if seconds < 1e4 else f"{seconds:.0f} s"


def _dates(numbers: list[int], usual: float) -> str | None:
    """What whole numbers are that were written as dates or as a clock."""
    if all(_DATE.fullmatch(str(number)) for number in (numbers[0], numbers[-1])):
        known = "YYYYMMDDHHMMSS" if numbers[0] > 1e13 else "iso, as 2020-02-13T13:57:29"
        return f"they seem to be dates (time_format: {known})"
    jumps = {later // 100 - earlier // 100 for earlier, later in itertools.pairwise(numbers)}
    long = numbers[-1] // 100 - numbers[0] // 100 > 1
    if long and usual < 40 and jumps <= {0, 1, 41} and all(number % 100 < 60 for number in numbers):
        return "they seem to be hours, minutes and seconds of a clock; write dates (time_format: iso)"
    return None
