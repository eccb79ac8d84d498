"""Published of a run with the numbers that a paper published for the same experiment."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean
from typing import Any

import numpy as np

from edgefl import shipped
from edgefl.errors import UserError
from edgefl.record.summary import SeedResult
from edgefl.report.curves import column, spent_by_round
from edgefl.report.quantities import quantity
from edgefl.report.rows import by_run, described, run_names
from edgefl.report.run_result import RunResult
from edgefl.report.table import MISSING, Column, Table, words
from edgefl.yaml_file import read_yaml


@dataclass(frozen=True)
class Published:
    """One published number and ours.

    Attributes:
        method: the method's label.
        metric: the name of the number; the methods are ordered by the numbers of one metric.
        dimension: of both numbers: ``fraction``, ``loss``, ``rounds``, ``seconds`` or ``bytes``.
        published: the paper's number; ``None`` if the paper gives only a rank.
        bound: ``more than`` or ``less than`` if the paper gives only a bound, else empty.
        order: the key that orders the paper's methods; smaller is better.
        ours: the mean over our seeds; ``None`` if a seed has no such number.
        source: the table, figure or sentence of the paper.
    """

    method: str
    metric: str
    dimension: str
    published: float | None
    bound: str
    order: float
    ours: float | None
    source: str

    @property
    def gap(self) -> float | None:
        """Ours minus the published number."""
        return None if self.ours is None or self.published is None or self.bound else self.ours - self.published


def comparisons(run: RunResult) -> list[Published]:
    """Every published number of the run's scenario whose methods are in the run."""
    entries = run.scenario.get("published") or []
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
    whole = _shipped_rounds(str(run.scenario.get("name")))
    if rounds is None or whole is None or rounds >= whole:
        return None
    return f"{rounds} of {whole} rounds: the published numbers are for all {whole}."


def _shipped_rounds(name: str) -> int | None:
    """The rounds of the shipped scenario of this name, if it has published numbers."""
    for named, file in shipped.files("scenarios").items():
        # The path consists of the paper's folder and the figure: papers/fedbr/fig4 contains fedbr_fig4.
        if named.startswith("papers/") and "_".join(named.split("/")[1:]) == name:
            scenario: dict[str, Any] = read_yaml(file)
            return int(scenario["training"]["rounds"])
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
    return Published(
        method=entry["method"],
        metric=_words(entry),
        dimension=dimension,
        published=value,
        bound=bound,
        order=float(entry["rank"]) if value is None else better * float(value) + _BEYOND.get(bound, 0.0),
        ours=fmean(known) if found and len(known) == len(found) else None,
        source=entry["source"],
    )


_BEYOND = {"more than": 0.5, "less than": -0.5}
"""Offsets that place a bound such as 1000+ in the order of rounds."""


def _words(entry: dict[str, Any]) -> str:
    """The name of the number."""
    words = str(entry["metric"]).replace("_", " ")
    if entry.get("accuracy"):
        words += f" {100 * entry['accuracy']:g} %"
    if entry.get("round"):
        words += f" at round {entry['round']}"
    for kind in ("seconds", "bytes"):
        if entry.get(kind):
            words += f" within {quantity(entry[kind], kind)}"
    return words


def _ours(run: RunResult, entry: dict[str, Any], label: str, result: SeedResult) -> float | None:
    """One seed's number; ``None`` if the run ended before the round or the target to which it refers."""
    metric = entry["metric"]
    if metric in ("accuracy_personalised", "accuracy_gain"):
        return _of_clients(result, metric)
    table = run.rounds_of(label, result.seed)
    spent = spent_by_round(table)
    limits = {kind: entry[name] for kind, name in _LIMITS.items() if entry.get(name) is not None}
    within = [spent[kind] <= limit for kind, limit in limits.items()]
    counted = int(np.all(within, axis=0).sum()) if within else len(table)
    if not counted or spent["rounds"][counted - 1] < limits.get("rounds", 0):
        return None
    if metric in ("accuracy", "accuracy_ema", "accuracy_best", "loss"):
        values = column(table, "accuracy" if metric == "accuracy_best" else metric)[:counted]
        known = values[~np.isnan(values)]
        return None if not len(known) else float(known.max() if metric == "accuracy_best" else known[-1])
    last = counted - 1
    if metric.endswith("_to"):
        accuracies = column(table, "accuracy_ema" if run.smoothed else "accuracy")[:counted]
        reached = np.flatnonzero(accuracies >= entry["accuracy"])
        if not len(reached):
            return None
        last = reached[0]
    if metric == "seconds_a_round":
        return float(spent["seconds"][last] / spent["rounds"][last])
    return float(spent[metric.removesuffix("_to")][last])


_LIMITS = {"seconds": "seconds", "bytes": "bytes", "rounds": "round"}
"""The kinds of amounts that a published number may limit, with their keys."""


def _of_clients(result: SeedResult, metric: str) -> float | None:
    """The clients' accuracy over images after personalisation, or its gain."""
    fitted, shared = result.personalisation, result.clients
    if fitted is None or shared is None:
        return None
    return fitted.cumulative - (shared.cumulative if metric == "accuracy_gain" else 0.0)


def _shown(value: float | None, comparison: Published, sign: str = "") -> str:
    if value is None:
        return MISSING
    if sign and value > 0:
        return sign + _shown(value, comparison)
    return f"{value:.4g}" if comparison.dimension in ("rounds", "loss") else quantity(value, comparison.dimension)


def orderings(found: list[Published]) -> list[str]:
    """For each metric a sentence about whether our methods are in the paper's order.

    Published numbers of one metric form one order, and so do the ranks of one source without numbers. A pair of methods
    is in the paper's order if our figures differ in the same direction. A method that never reached a target is after
    all that did. Pairs that are equal in the paper, or for which both of our figures are missing, are not compared.
    """
    groups: dict[tuple[str, str], list[Published]] = {}
    for each in found:
        claim = f" ({each.source})" if each.published is None else ""
        groups.setdefault((each.metric, claim), []).append(each)
    named = Counter(metric for metric, _ in groups)
    sentences = []
    for (metric, claim), claimed in groups.items():
        group = sorted(claimed, key=lambda each: each.order)
        pairs = [
            (better, worse)
            for better, worse in combinations(group, 2)
            if better.order < worse.order and not (better.ours is None and worse.ours is None)
        ]
        if not pairs:
            continue
        what = metric + claim if named[metric] > 1 else metric
        wrong = [f"{better.method} before {worse.method}" for better, worse in pairs if not _kept(better, worse)]
        if wrong:
            kept = f"{len(pairs) - len(wrong)} of {len(pairs)} pairs in the paper's order"
            sentences.append(f"{what}: {kept}; not {', '.join(wrong)}.")
        else:
            sentences.append(f"{what}: the paper's order holds ({len(pairs)} pairs).")
    return sentences


def _kept(better: Published, worse: Published) -> bool:
    if better.ours is None or worse.ours is None:
        return better.ours is not None and better.dimension != "fraction"
    sign = -1 if better.dimension == "fraction" else 1
    return sign * better.ours < sign * worse.ours


def published_table(runs: Sequence[RunResult]) -> Table:
    """Published numbers, ours and the gaps; below them whether the paper's order holds."""
    several, names = len(runs) > 1, run_names(runs)
    rows = [(name, each) for name, run in zip(names, runs, strict=True) for each in comparisons(run)]
    all_found = [each for _, each in rows]
    orders = {name: orderings([each for run, each in rows if run == name]) for name in names}
    shorter = {name: note for name, run in zip(names, runs, strict=True) if (note := shortened(run))}
    bounds = [f"{each.bound} {_shown(each.published, each)}".strip() for each in all_found]
    # Without a number, the paper gives only a rank.
    ranks = [round(each.order) if each.published is None else None for each in all_found]
    run = words("run", [name for name, _ in rows], "run")
    method, metric, source = (
        words(name, [getattr(each, name) for each in all_found], name) for name in ("method", "metric", "source")
    )
    numbers = [
        Column("published", bounds, [each.published for each in all_found], "published"),
        Column("ours", [_shown(each.ours, each) for each in all_found], [_finite(e.ours) for e in all_found], "ours"),
        Column("gap", [_shown(each.gap, each, "+") for each in all_found], [_finite(e.gap) for e in all_found], "gap"),
    ]
    hidden = [
        Column("", (), [each.dimension for each in all_found], "dimension"),
        Column("", (), [each.bound for each in all_found], "bound"),
        Column("", (), ranks, "rank"),
    ]
    lines = by_run({name: [*([shorter[name]] if name in shorter else []), *orders[name]] for name in names})
    files = [run, method, metric, hidden[0], numbers[0], *hidden[1:], *numbers[1:], source]
    data = {
        "runs": described(runs),
        "rows": Table(files).records,
        "orders": [{"run": name, "sentences": found} for name, found in orders.items()],
        "notes": [f"{name}: {note}" for name, note in shorter.items()],
    }
    return Table([*([run] if several else []), method, metric, *numbers, source], lines, data=data, files=files)


def _finite(value: float | None) -> float | None:
    """The value if it is finite, because JSON has no infinity or NaN, which a loss may be."""
    return value if value is not None and math.isfinite(value) else None
