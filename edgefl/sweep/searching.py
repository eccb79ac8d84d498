"""Choose settings on images that the final comparison does not use: the best of a grid, or optuna's proposals."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import pyarrow as pa

from edgefl.errors import UserError, optional
from edgefl.record.figures import PRICED, QUANTITIES
from edgefl.record.metric import WORST, Metric
from edgefl.registry import chosen_part
from edgefl.scenario.sections import OptunaSpec, SweepSpec
from edgefl.sweep.jobs import Job, Search, Setting
from edgefl.tasks.base import TASKS
from edgefl.wording import grouped

FIGURES = {"accuracy": "final", "best": "best", "ema": "ema"}
"""The figures that settings can be chosen by, and the ends of their columns' names."""


@dataclass(frozen=True)
class Chosen:
    """One method's best setting, with the mean of the figure over the seeds, and the figure's name and dimension.

    ``edge`` has the paths whose chosen number is the smallest or the largest of those tried: a better one may lie
    outside.
    """

    method: str
    setting: Setting
    value: float
    seeds: int
    edge: tuple[str, ...]
    metric: str
    dimension: str


def metric_of(job: Job) -> Metric:
    """Return the metric of a job's models."""
    return chosen_part(TASKS, job.scenario.get("task", "classification")).measured


def column_of(figure: str, metric: Metric) -> str:
    """Return the column of a figure in the rows of runs."""
    return f"{'accuracy' if metric.is_accuracy else 'metric'}_{FIGURES[figure]}"


def merit(figure: str, found: Sequence[Mapping[str, Mapping[str, Any]]], metric: Metric) -> float:
    """Return the mean of a figure over the jobs of one setting and method, so that the highest is the best.

    ``found`` are the figures of each job, by its only method; minus infinity if a job has none.
    """
    values = [row[column_of(figure, metric)] for figures in found for row in figures.values()]
    if len(values) != len(found) or None in values:
        return -math.inf
    return fmean(values) if metric.better == "higher" else -fmean(values)


def check_split(jobs: Sequence[Job], asked: str = "--choose") -> None:
    """Check that settings are not chosen on the images that the final comparison uses."""
    if any(job.scenario["evaluation"]["split"] != "validation" for job in jobs):
        raise UserError(
            "settings are chosen on held-out training images, but the scenario evaluates the test images; "
            "add --set evaluation.split=validation",
            file=asked,
        )


def choose(jobs: Sequence[Job], table: pa.Table, by: str) -> list[Chosen]:
    """Return the best setting of each method, by its mean over the seeds, of those that finished with every seed.

    ``by`` is one of :data:`FIGURES`, or a cost such as ``grams``, of which the least is the best; of runs with targets,
    only settings that reach the last one with every seed are compared.
    """
    measured, reached = metric_of(jobs[0]), None
    name, dimension, column, sign = measured.name, measured.dimension, by, -1
    if by in FIGURES:
        check_split(jobs)
        column, sign = column_of(by, measured), 1 if measured.better == "higher" else -1
    else:
        name, dimension = by, (QUANTITIES | PRICED)[by].unit
        reached = next((each for each in reversed(table.column_names) if each.startswith("seconds_to_")), None)
    texts = {job.id: json.dumps(dict(job.setting)) for job in jobs}
    settings = {texts[job.id]: job.setting for job in jobs}
    seeds, chosen = len({job.seed for job in jobs}), []
    for method, rows in grouped((row["method"], row) for row in table.to_pylist()).items():
        counted = [row for row in rows if row.get(column) is not None and (reached is None or row[reached] is not None)]
        found = grouped((texts[row["job"]], row[column]) for row in counted)
        means = {text: fmean(values) for text, values in found.items() if len(values) == seeds}
        if not means:
            lacking = "reaches its last target" if reached is not None and by in table.column_names else f"has its {by}"
            raise UserError(f"no setting of {method} {lacking} with every seed", file="--choose")
        text = max(means, key=lambda text: sign * means[text])
        best = settings[text]
        edge = tuple(path for path in best if _at_the_edge(best[path], [job.setting[path] for job in jobs]))
        chosen.append(Chosen(method, best, means[text], seeds, edge, name, dimension))
    return chosen


def _at_the_edge(value: Any, tried: Sequence[Any]) -> bool:
    numbers = [each for each in tried if isinstance(each, int | float) and not isinstance(each, bool)]
    return len(set(numbers)) > 1 and len(numbers) == len(tried) and value in (min(numbers), max(numbers))


def proposals(spec: SweepSpec, options: OptunaSpec, methods: Sequence[str], make: Callable[..., list[Job]]) -> Search:
    """Yield the jobs of settings that a tree-structured Parzen estimator proposes, in batches for each method.

    Source: Bergstra et al., Algorithms for Hyper-Parameter Optimization, 2011, in optuna's ``TPESampler``. The batch
    size is fixed, and results are passed to optuna in the order of the proposals, so the same search proposes the same
    settings with any number of processors, and after an interruption. ``make`` returns the jobs of a setting with one
    method; each is tuned separately.
    """
    optuna = optional("optuna", "optuna", field="sweep.optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = _space(optuna, spec)
    sampler, create = optuna.samplers.TPESampler, optuna.create_study
    studies = {each: create(direction="maximize", sampler=sampler(seed=options.seed)) for each in methods}
    for start in range(0, options.trials, options.together):
        count = min(options.together, options.trials - start)
        asked = [(study, study.ask(space), method) for method, study in studies.items() for _ in range(count)]
        jobs = [make(_setting(spec, trial.params), method) for _, trial, method in asked]
        figures = iter((yield [job for each in jobs for job in each]))
        for (study, trial, _), each in zip(asked, jobs, strict=True):
            metric = metric_of(each[0])
            worst = 0.0 if metric.better == "higher" else -WORST
            # A setting that fails or diverges gets the worst value, so that the next proposals avoid it.
            study.tell(trial, max(merit(options.metric, [next(figures) for _ in each], metric), worst))


def _space(optuna: Any, spec: SweepSpec) -> dict[str, Any]:
    # Values may be mappings, which optuna does not support, so it proposes their indices.
    of = optuna.distributions
    chosen = {path: of.CategoricalDistribution(range(len(values))) for path, values in spec.grid.items()}
    ranges = {path: of.FloatDistribution(each.low, each.high, log=each.log) for path, each in spec.ranges.items()}
    return chosen | ranges


def _setting(spec: SweepSpec, proposed: Mapping[str, Any]) -> Setting:
    return {path: spec.grid[path][value] if path in spec.grid else float(value) for path, value in proposed.items()}
