"""The best setting of each method, chosen on images that the final comparison does not use."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import pyarrow as pa

from edgefl.errors import UserError
from edgefl.record.metric import Metric
from edgefl.registry import chosen_part
from edgefl.sweep.jobs import Job
from edgefl.sweep.settings import Setting
from edgefl.tasks.base import TASKS

FIGURES = {"accuracy": "final", "best": "best", "ema": "ema"}
"""The figures that settings can be chosen by, and the ends of their columns' names."""


@dataclass(frozen=True)
class Chosen:
    """One method's best setting.

    Attributes:
        method: its label.
        setting: values by path.
        value: the mean of the metric over the seeds; ``seeds``: the number of seeds.
        metric: the metric of its models.
        edge: paths whose chosen number is the smallest or the largest of those tried: a better one may lie outside.
    """

    method: str
    setting: Setting
    value: float
    seeds: int
    edge: tuple[str, ...]
    metric: Metric


def metric_of(job: Job) -> Metric:
    """Return the metric of a job's models."""
    return chosen_part(TASKS, job.scenario.get("task", "classification")).measured


def column_of(figure: str, metric: Metric) -> str:
    """Return the column of a figure in the rows of runs."""
    return f"{'accuracy' if metric.is_accuracy else 'metric'}_{FIGURES[figure]}"


def merit(figure: str, found: Sequence[Mapping[str, Sequence[Mapping[str, Any]]]], metric: Metric) -> float:
    """Return the mean of a figure over the jobs of one setting and method, so that the highest is the best.

    It is minus infinity if a job has none.

    Args:
        figure: a key of :data:`FIGURES`.
        found: the figures of each job, by its only method.
        metric: the metric of their models.
    """
    values = [rows[0][column_of(figure, metric)] for figures in found for rows in figures.values()]
    if len(values) != len(found) or None in values:
        return -math.inf
    return fmean(values) if metric.better == "higher" else -fmean(values)


def check_split(jobs: Sequence[Job], asked: str = "--choose") -> None:
    """Check that settings are not chosen on the images that the final comparison uses.

    Raises:
        UserError: a job evaluates the test split.
    """
    if any(job.scenario["evaluation"]["split"] != "validation" for job in jobs):
        raise UserError(
            "settings are chosen on held-out training images, but the scenario evaluates the test images; "
            "add --set evaluation.split=validation",
            file=asked,
        )


def choose(jobs: Sequence[Job], table: pa.Table, metric: str) -> list[Chosen]:
    """Return the setting with the best mean over the seeds for each method; the first if several are equal.

    Only settings whose jobs finished for every seed count, not those that successive halving dropped.

    Raises:
        UserError: a job evaluates the test split, or nothing was trained.
    """
    check_split(jobs)
    measured = metric_of(jobs[0])
    column = column_of(metric, measured)
    settings = {job.id: job.setting for job in jobs}
    grouped: dict[str, dict[str, tuple[Setting, list[float | None]]]] = {}
    for row in table.to_pylist():
        if row.get("stop") == "paused":
            continue
        setting = settings[row["job"]]
        found = grouped.setdefault(row["method"], {}).setdefault(json.dumps(dict(setting)), (setting, []))
        found[1].append(row[column])
    seeds = len({job.seed for job in jobs})
    chosen = []
    for method, candidates in grouped.items():
        means: list[tuple[Setting, float]] = []
        for setting, values in candidates.values():
            known = [value for value in values if value is not None]
            if len(known) == seeds:
                means.append((setting, fmean(known)))
        if not means:
            raise UserError(f"no setting of {method} has a metric for every seed to choose by", file="--choose")
        sign = 1 if measured.better == "higher" else -1
        best, value = max(means, key=lambda pair: sign * pair[1])
        edge = tuple(path for path in best if _at_the_edge(best[path], [job.setting[path] for job in jobs]))
        chosen.append(Chosen(method, best, value, seeds, edge, measured))
    return chosen


def _at_the_edge(value: Any, tried: Sequence[Any]) -> bool:
    numbers = [each for each in tried if isinstance(each, int | float) and not isinstance(each, bool)]
    return len(set(numbers)) > 1 and len(numbers) == len(tried) and value in (min(numbers), max(numbers))
