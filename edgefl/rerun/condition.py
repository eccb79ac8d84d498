"""A condition on a run, as a user writes it: ``accuracy=0.9 within 1h and within 500 MB``."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from edgefl.errors import UserError
from edgefl.record.metric import Metric
from edgefl.record.rounds import RoundRow
from edgefl.scenario import Scenario
from edgefl.scenario.sections import values_of
from edgefl.units import UNITS, at_most, parse

Kind = Literal["seconds", "bytes", "joules"]
"""What a condition limits: virtual time, bytes in both directions, energy of all devices."""

KINDS: tuple[Kind, ...] = get_args(Kind)
EXAMPLE = "'accuracy=0.9 within 1h and within 500 MB'"

_TARGET = re.compile(r"targets\.(\d+)")
_VALUE = re.compile(r"([A-Za-z_]\w*)\s*=\s*(\S+)")
_NUMBER = re.compile(r"\s*[-+]?[\d.]+(?:[eE][-+]?\d+)?")
_WITHIN = re.compile(r"\s+(?:and\s+)?within\s+")
_SMOOTHED = "_ema"


@dataclass(frozen=True)
class Condition:
    """A value of the metric, or of its moving average, to be reached within limits in base units."""

    metric: Metric
    value: float
    smoothed: bool
    limits: Mapping[Kind, float]

    def reached(self, row: RoundRow) -> bool:
        """Whether the model at the end of a round reaches the value."""
        return self.metric.reaches(row.metric_ema if self.smoothed else row.metric, self.value)

    def exceeded(self, spent: Mapping[Kind, float]) -> Kind | None:
        """The first limit that these amounts exceed."""
        return next((kind for kind, limit in self.limits.items() if not at_most(spent[kind], limit)), None)


def parse_condition(text: str, scenario: Scenario) -> Condition:
    """Read ``METRIC=VALUE within QUANTITY [and within QUANTITY…]``, or ``targets.N within …``.

    >>> from edgefl.scenario import load_scenario
    >>> condition = parse_condition("accuracy=0.9 within 1 min and within 2 GB", load_scenario("5g_100clients"))
    >>> condition.value, condition.limits
    (0.9, {'seconds': 60.0, 'bytes': 2000000000.0})
    """
    goal, *quantities = _WITHIN.split(text.strip())
    place = f"--for '{text}'"
    if not quantities:
        raise UserError(f"expected METRIC=VALUE within QUANTITY, such as {EXAMPLE}", file=place)
    try:
        value, smoothed = _goal(goal, scenario)
        limits = _limits(quantities)
    except UserError as error:
        raise error.located(file=place) from None
    return Condition(scenario.task.measured, value, smoothed, limits)


def _goal(text: str, scenario: Scenario) -> tuple[float, bool]:
    """The value to reach, and whether it is one of the moving average."""
    metric = scenario.task.measured
    if (target := _TARGET.fullmatch(text)) is not None:
        values, index = values_of(scenario.targets), int(target[1])
        if index >= len(values):
            count = f"{len(values)} target{'' if len(values) == 1 else 's'}"
            raise UserError(f"the run's scenario has {count}, counted from 0; found targets.{index}")
        return values[index], scenario.target_metric.endswith(_SMOOTHED)
    found = _VALUE.fullmatch(text)
    if found is None:
        raise UserError(f"expected METRIC=VALUE or targets.N before 'within', found '{text}'")
    name = found[1].removesuffix(_SMOOTHED)
    if name != metric.name:
        raise UserError(f"expected {metric.name}, the metric of the run's task, found {found[1]}")
    try:
        value = float(found[2])
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf or (metric.share and value > 1):
        expected = "a share in (0, 1]" if metric.share else "a number above 0"
        raise UserError(f"expected {expected} after '{found[1]}=', found {found[2]}")
    return value, found[1] != name


def _limits(quantities: Sequence[str]) -> dict[Kind, float]:
    """The limit of each kind; a quantity's unit determines its kind."""
    limits: dict[Kind, float] = {}
    for text in quantities:
        unit = _NUMBER.sub("", text, count=1).strip()
        kind = next((kind for kind in KINDS if unit in UNITS[kind]), None)
        if kind is None:
            raise UserError(f"expected seconds, bytes or joules with a unit, such as '1h' or '500 MB', found '{text}'")
        if kind in limits:
            raise UserError(f"expected one limit of each kind, found two of {kind}")
        limits[kind] = parse(text, kind)
        if limits[kind] <= 0:
            raise UserError(f"expected a limit above 0, found '{text}'")
    return limits
