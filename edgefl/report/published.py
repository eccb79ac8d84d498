"""A run's numbers next to those that a paper published for the same experiment."""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from statistics import fmean
from typing import Any, NamedTuple, Self

import numpy as np

from edgefl import shipped
from edgefl.errors import UserError
from edgefl.record.figures import finite, spent_by_round
from edgefl.record.summary import SeedResult
from edgefl.report.quantities import quantity
from edgefl.report.rows import described, named
from edgefl.report.run_result import RunResult
from edgefl.report.table import MISSING, Column, Table, hidden, words
from edgefl.wording import by_run, grouped
from edgefl.yaml_file import read_yaml


class Published(NamedTuple):
    """One published number and ours."""

    method: str
    metric: str  # the name of the number; the methods are ordered by the numbers of one metric
    dimension: str  # of both numbers: fraction, loss, rounds, seconds or bytes
    published: float | None  # the paper's number; None if the paper gives only a rank
    bound: str  # more than or less than if the paper gives only a bound, else empty
    order: float  # the key that orders the paper's methods; smaller is better
    ours: float | None  # the mean over our seeds; None if a seed has no such number
    source: str  # the table, figure or sentence of the paper

    @property
    def gap(self) -> float | None:
        """Ours minus the published number."""
        return None if self.ours is None or self.published is None or self.bound else self.ours - self.published

    @property
    def rank(self) -> int | None:
        """The method's rank if the paper gives only this."""
        return round(self.order) if self.published is None else None

    def shown(self, value: float | None, sign: str = "") -> str:
        """A number of this dimension as text; a positive one with a sign."""
        if value is None:
            return MISSING
        text = f"{value:.4g}" if self.dimension in ("rounds", "loss") else quantity(value, self.dimension)
        return sign + text if value > 0 else text

    def precedes(self, other: Self) -> bool:
        """Whether our figure is better than another one; a target that was never reached is the worst."""
        if self.ours is None or other.ours is None:
            return self.ours is not None and self.dimension != "fraction"
        return self.ours > other.ours if self.dimension == "fraction" else self.ours < other.ours


def comparisons(run: RunResult) -> list[Published]:
    """Every published number of the run's scenario whose methods are in the run."""
    entries = run.option("published")
    if not entries:
        raise UserError("its scenario has no published numbers; scenarios papers/… have them", file=str(run.path))
    return [_compared(run, each) for each in entries if set(_labels(each)) <= set(run.labels)]


def shortened(run: RunResult) -> str | None:
    """A sentence if the run has fewer planned rounds than the shipped scenario that contains the published numbers.

    >>> from types import SimpleNamespace as Run
    >>> shortened(Run(scenario={"name": "fedadc_fig1_s2", "training": {"rounds": 20}}))
    '20 of 500 rounds: the published numbers are for all 500.'
    """
    rounds = (run.scenario.get("training") or {}).get("rounds")
    for scenario, file in shipped.files("scenarios").items():
        # The path consists of the paper's folder and the figure: papers/fedbr/fig4 contains fedbr_fig4.
        if scenario.startswith("papers/") and "_".join(scenario.split("/")[1:]) == str(run.scenario.get("name")):
            whole = int(read_yaml(file)["training"]["rounds"])
            if rounds is not None and rounds < whole:
                return f"{rounds} of {whole} rounds: the published numbers are for all {whole}."
    return None


def _labels(entry: dict[str, Any]) -> list[str]:
    """The methods over which a published number is the mean; usually one."""
    return list(entry.get("mean_of") or [entry["method"]])


def _compared(run: RunResult, entry: dict[str, Any]) -> Published:
    metric = entry["metric"]
    found = [_ours(run, entry, label, result) for label in _labels(entry) for result in run.results[label]]
    known = [each for each in found if each is not None]
    value = entry.get("value")
    bound = "more than" if entry.get("more_than") else "less than" if entry.get("less_than") else ""
    dimension = "fraction" if metric.startswith("accuracy") else metric.removesuffix("_to").removesuffix("_a_round")
    better = -1.0 if dimension == "fraction" else 1.0
    order = float(entry["rank"]) if value is None else better * float(value) + _BEYOND.get(bound, 0.0)
    ours = fmean(known) if found and len(known) == len(found) else None
    return Published(entry["method"], _words(entry), dimension, value, bound, order, ours, entry["source"])


_BEYOND = {"more than": 0.5, "less than": -0.5}
"""Offsets that place a bound such as 1000+ in the order of rounds."""


def _words(entry: dict[str, Any]) -> str:
    words = [str(entry["metric"]).replace("_", " ")]
    words += [f"{100 * entry['accuracy']:g} %"] if entry.get("accuracy") else []
    words += [f"at round {entry['round']}"] if entry.get("round") else []
    words += [f"within {quantity(entry[kind], kind)}" for kind in ("seconds", "bytes") if entry.get(kind)]
    return " ".join(words)


def _ours(run: RunResult, entry: dict[str, Any], label: str, result: SeedResult) -> float | None:
    """One seed's number; ``None`` if the run ended before the round or the target to which it refers."""
    metric = entry["metric"]
    if metric in ("accuracy_personalised", "accuracy_gain"):  # over images after personalisation
        fitted, shared = result.personalisation, result.clients
        gain = metric == "accuracy_gain"
        return fitted.cumulative - (shared.cumulative if gain else 0.0) if fitted and shared else None
    columns = run.columns_of(label, result.seed)
    spent = spent_by_round(columns)
    limits = {kind: entry[name] for kind, name in _LIMITS.items() if entry.get(name) is not None}
    within = [spent[kind] <= limit for kind, limit in limits.items()]
    counted = int(np.all(within, axis=0).sum()) if within else len(spent["rounds"])
    if not counted or spent["rounds"][counted - 1] < limits.get("rounds", 0):
        return None
    if metric in ("accuracy", "accuracy_ema", "accuracy_best", "loss"):
        best = metric == "accuracy_best"
        values = columns["accuracy" if best else metric][:counted]
        known = values[~np.isnan(values)].tolist()
        return (max(known) if best else known[-1]) if known else None
    last = counted - 1
    if metric.endswith("_to"):
        accuracies = columns["accuracy_ema" if run.smoothed else "accuracy"]
        reached = np.flatnonzero(accuracies[:counted] >= entry["accuracy"])
        if not len(reached):
            return None
        last = reached[0]
    if metric == "seconds_a_round":
        return float(spent["seconds"][last] / spent["rounds"][last])
    return float(spent[metric.removesuffix("_to")][last])


_LIMITS = {"seconds": "seconds", "bytes": "bytes", "rounds": "round"}
"""The kinds of amounts that a published number may limit, with their keys."""


def orderings(found: list[Published]) -> list[str]:
    """For each metric a sentence about whether our methods are in the paper's order.

    Published numbers of one metric form one order, and so do the ranks of one source without numbers. A pair of methods
    is in the paper's order if our figures differ in the same direction. A method that never reached a target is after
    all that did. Pairs that are equal in the paper, or for which both of our figures are missing, are not compared.
    """
    groups = grouped(((each.metric, f" ({each.source})" * (each.published is None)), each) for each in found)
    named = Counter(metric for metric, _ in groups)
    sentences = []
    for (metric, claim), claimed in groups.items():
        both = combinations(sorted(claimed, key=lambda each: each.order), 2)
        pairs = [(one, two) for one, two in both if one.order < two.order and {one.ours, two.ours} != {None}]
        wrong = [f"{better.method} before {worse.method}" for better, worse in pairs if not better.precedes(worse)]
        kept = f"the paper's order holds ({len(pairs)} pairs)"
        if wrong:
            kept = f"{len(pairs) - len(wrong)} of {len(pairs)} pairs in the paper's order; not {', '.join(wrong)}"
        sentences += [f"{metric}{claim * (named[metric] > 1)}: {kept}."] if pairs else []
    return sentences


def published_table(runs: Sequence[RunResult]) -> Table:
    """Published numbers, ours and the gaps; below them whether the paper's order holds."""
    found = {name: comparisons(run) for name, run in named(runs).items()}
    rows = [each for of_run in found.values() for each in of_run]
    orders = {name: orderings(each) for name, each in found.items()}
    shorter = {name: list(filter(None, [shortened(run)])) for name, run in zip(found, runs, strict=True)}
    run = words("run", [name for name, each in found.items() for _ in each], "run")
    method, metric, source = (
        words(name, [getattr(each, name) for each in rows], name) for name in ("method", "metric", "source")
    )
    dimension, bound, rank = (hidden([getattr(each, k) for each in rows], k) for k in ("dimension", "bound", "rank"))
    bounds = [f"{each.bound} {each.shown(each.published)}".strip() for each in rows]
    published = Column("published", bounds, [each.published for each in rows], "published")
    ours = Column("ours", [each.shown(each.ours) for each in rows], [finite(each.ours) for each in rows], "ours")
    gap = Column("gap", [each.shown(each.gap, "+") for each in rows], [finite(each.gap) for each in rows], "gap")
    lines = by_run({name: [*shorter[name], *order] for name, order in orders.items()})
    files = [run, method, metric, dimension, published, bound, rank, ours, gap, source]
    data = {
        "runs": described(runs),
        "rows": Table(files).records,
        "orders": [{"run": name, "sentences": found} for name, found in orders.items()],
        "notes": [f"{name}: {note}" for name, notes in shorter.items() for note in notes],
    }
    shown = [run] * (len(runs) > 1) + [method, metric, published, ours, gap, source]
    return Table(shown, lines, data=data, files=files)
