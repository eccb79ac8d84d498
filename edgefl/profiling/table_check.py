"""Compare the seconds that a profile predicts with the measured ones of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from edgefl.fleet import DeviceProfile, step_seconds
from edgefl.profiling.step_table import StepTable, StepTime


@dataclass(frozen=True)
class Compared:
    """A measured time and its prediction."""

    time: StepTime
    predicted: float

    @property
    def error(self) -> float:
        """Predicted divided by measured seconds, minus 1."""
        return self.predicted / self.time.seconds - 1

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "line": self.time.line,
            "step": self.time.text,
            "model": self.time.model,
            "part": self.time.part,
            "family": self.time.family,
            "measured_seconds": self.time.seconds,
            "predicted_seconds": self.predicted,
            "error": self.error,
        }


@dataclass(frozen=True)
class Errors:
    """The relative errors of several predictions, as fractions."""

    mean_absolute: float
    median_absolute: float
    mean: float
    count: int

    @staticmethod
    def of(compared: Sequence[Compared]) -> Errors:
        """The errors of at least one prediction."""
        errors = [each.error for each in compared]
        sizes = [abs(error) for error in errors]
        return Errors(fmean(sizes), median(sizes), fmean(errors), len(errors))

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "mean_absolute_error": self.mean_absolute,
            "median_absolute_error": self.median_absolute,
            "mean_error": self.mean,
            "count": self.count,
        }


def compare(profile: DeviceProfile, table: StepTable) -> list[Compared]:
    """Each time of the table with its prediction."""
    return [Compared(time, step_seconds(profile, time.operators)) for time in table.times]


def by_family(compared: Sequence[Compared]) -> dict[str, Errors]:
    """The errors of each family of models, by name."""
    names = sorted({each.time.family for each in compared})
    return {name: Errors.of([each for each in compared if each.time.family == name]) for name in names}


def by_part(compared: Sequence[Compared]) -> dict[str, Errors]:
    """The errors for what was trained: ``all`` parameters, or the ``head``."""
    names = sorted({each.time.part for each in compared})
    return {name: Errors.of([each for each in compared if each.time.part == name]) for name in names}


def as_dict(compared: Sequence[Compared], table: StepTable) -> dict[str, Any]:
    """Plain data for JSON: the errors of all predictions, of each family and each part, and the rows."""
    return {
        **Errors.of(compared).as_dict(),
        "families": {name: errors.as_dict() for name, errors in by_family(compared).items()},
        "parts": {name: errors.as_dict() for name, errors in by_part(compared).items()},
        "steps": [each.as_dict() for each in compared],
        "left_out": dict(table.left_out),
        "ignored_columns": list(table.ignored),
    }
