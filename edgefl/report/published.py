"""A run beside the numbers that a paper published of the same experiment."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from statistics import fmean
from typing import Any

from edgefl.errors import UserError
from edgefl.report.quantities import quantity
from edgefl.report.run_result import RunResult


@dataclass(frozen=True)
class Comparison:
    """One published number and ours.

    Attributes:
        method: the method's label.
        metric: which number, in words; the numbers of one metric are ordered against each other.
        dimension: of both numbers: ``fraction``, ``rounds``, ``seconds`` or ``bytes``.
        published: the paper's number, ``None`` where it gives a place in an order only.
        more_than: the paper's number is a lower bound.
        order: what orders the paper's methods: small is better.
        ours: the mean over our seeds; ``None`` where some seed has no such number.
        source: where it was published.
    """

    method: str
    metric: str
    dimension: str
    published: float | None
    more_than: bool
    order: float
    ours: float | None
    source: str

    @property
    def gap(self) -> float | None:
        """Ours minus the published number."""
        return None if self.ours is None or self.published is None or self.more_than else self.ours - self.published


def comparisons(run: RunResult) -> list[Comparison]:
    """Every published number of the run's scenario whose method the run has.

    Raises:
        UserError: the scenario has no published numbers.
    """
    said = run.scenario.get("published") or []
    if not said:
        raise UserError("its scenario has no published numbers; shipped ones are called papers/…", file=str(run.path))
    return [_compared(run, each) for each in said if each["method"] in run.labels]


def _compared(run: RunResult, said: dict[str, Any]) -> Comparison:
    metric = said["metric"]
    dimension = "fraction" if metric.startswith("accuracy") else metric.removesuffix("_to")
    found = [_ours(run, said, result.seed) for result in run.results[said["method"]]]
    known = [each for each in found if each is not None]
    words = metric.replace("_", " ")
    if said.get("accuracy"):
        words += f" {100 * said['accuracy']:g} %"
    if said.get("round"):
        words += f" at round {said['round']}"
    value = said.get("value")
    better = -1.0 if dimension == "fraction" else 1.0
    order = float(said["rank"]) if value is None else better * float(value) + (0.5 if said.get("more_than") else 0.0)
    return Comparison(
        method=said["method"],
        metric=words,
        dimension=dimension,
        published=value,
        more_than=bool(said.get("more_than")),
        order=order,
        ours=fmean(known) if found and len(known) == len(found) else None,
        source=said["source"],
    )


def _ours(run: RunResult, said: dict[str, Any], seed: int) -> float | None:
    """One seed's number, from its rounds."""
    table = run.rounds_of(said["method"], seed)
    rows = table.select(["round", "seconds", "accuracy", "accuracy_ema", "bytes_down", "bytes_up"]).to_pylist()
    metric, last = said["metric"], said.get("round")
    rows = [row for row in rows if last is None or row["round"] <= last]
    if not rows or (last is not None and rows[-1]["round"] < last):
        return None
    if metric.endswith("_to"):
        column = run.scenario.get("target_metric") or "accuracy"
        reached = next((n for n, row in enumerate(rows) if _at_least(row[column], said["accuracy"])), None)
        if reached is None:
            return None
        rows = rows[: reached + 1]
    if metric in ("accuracy", "accuracy_ema", "accuracy_best"):
        column = "accuracy_ema" if metric == "accuracy_ema" else "accuracy"
        known = [row[column] for row in rows if row[column] is not None and row[column] == row[column]]
        return None if not known else max(known) if metric == "accuracy_best" else known[-1]
    kind = metric.removesuffix("_to")
    if kind == "bytes":
        return float(sum(row["bytes_down"] + row["bytes_up"] for row in rows))
    return float(rows[-1]["round" if kind == "rounds" else kind])


def _at_least(value: float | None, level: float) -> bool:
    return value is not None and value >= level


def cells(comparison: Comparison) -> tuple[str, str, str, str, str, str]:
    """A row to print: method, metric, published, ours, gap, source."""
    published = "–" if comparison.published is None else _shown(comparison.published, comparison)
    gap = comparison.gap
    sign = "+" if gap is not None and gap > 0 else ""
    return (
        comparison.method,
        comparison.metric,
        f"more than {published}" if comparison.more_than else published,
        "–" if comparison.ours is None else _shown(comparison.ours, comparison),
        "–" if gap is None else sign + _shown(gap, comparison),
        comparison.source,
    )


def _shown(value: float, comparison: Comparison) -> str:
    return f"{value:.4g}" if comparison.dimension == "rounds" else quantity(value, comparison.dimension)


def orderings(found: list[Comparison]) -> list[str]:
    """For each metric a sentence that says whether our methods come in the paper's order.

    Two methods keep the order where ours differ the same way. A method that never reached a target comes after all that
    did. Methods that the paper shows as equal, or without any number of ours, are not compared.
    """
    sentences = []
    for metric in dict.fromkeys(each.metric for each in found):
        group = sorted((each for each in found if each.metric == metric), key=lambda each: each.order)
        pairs = [
            (better, worse)
            for better, worse in combinations(group, 2)
            if better.order < worse.order and not (better.ours is None and worse.ours is None)
        ]
        if not pairs:
            continue
        wrong = [f"{better.method} before {worse.method}" for better, worse in pairs if not _kept(better, worse)]
        if wrong:
            kept = f"{len(pairs) - len(wrong)} of {len(pairs)} pairs in the paper's order"
            sentences.append(f"{metric}: {kept}; not {', '.join(wrong)}.")
        else:
            sentences.append(f"{metric}: the paper's order holds ({len(pairs)} pairs).")
    return sentences


def _kept(better: Comparison, worse: Comparison) -> bool:
    if better.ours is None or worse.ours is None:
        return better.ours is not None and better.dimension != "fraction"
    sign = -1 if better.dimension == "fraction" else 1
    return sign * better.ours < sign * worse.ours
