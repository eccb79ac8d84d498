"""A run beside the numbers that a paper published of the same experiment."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import accumulate, combinations
from statistics import fmean
from typing import TYPE_CHECKING, Any

from edgefl import shipped
from edgefl.errors import UserError
from edgefl.record.summary import SeedResult
from edgefl.report.quantities import quantity
from edgefl.report.run_result import RunResult
from edgefl.yaml_file import read_yaml

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Comparison:
    """One published number and ours.

    Attributes:
        method: the method's label.
        metric: which number, in words; the numbers of one metric are ordered against each other.
        dimension: of both numbers: ``fraction``, ``loss``, ``rounds``, ``seconds`` or ``bytes``.
        published: the paper's number, ``None`` where it gives a place in an order only.
        bound: ``more than`` or ``less than`` where that is all that the paper says, else nothing.
        order: what orders the paper's methods: small is better.
        ours: the mean over our seeds; ``None`` where some seed has no such number.
        source: where it was published.
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


def comparisons(run: RunResult) -> list[Comparison]:
    """Every published number of the run's scenario whose method the run has.

    Raises:
        UserError: the scenario has no published numbers.
    """
    said = run.scenario.get("published") or []
    if not said:
        raise UserError("its scenario has no published numbers; shipped ones are called papers/…", file=str(run.path))
    return [_compared(run, each) for each in said if set(_labels(each)) <= set(run.labels)]


def shortened(run: RunResult) -> str | None:
    """A sentence where the run was to have fewer rounds than the shipped scenario whose numbers it is held against.

    >>> from types import SimpleNamespace as Run
    >>> shortened(Run(scenario={"name": "fedadc_fig1_s2", "training": {"rounds": 20}}))
    '20 of 500 rounds: the published numbers are of all 500.'
    """
    rounds = (run.scenario.get("training") or {}).get("rounds")
    whole = _shipped_rounds(str(run.scenario.get("name")))
    if rounds is None or whole is None or rounds >= whole:
        return None
    return f"{rounds} of {whole} rounds: the published numbers are of all {whole}."


def _shipped_rounds(name: str) -> int | None:
    """The rounds of the shipped scenario of this name, if it has published numbers."""
    for named, file in shipped.files("scenarios").items():
        # Its place is its paper's folder and its name: papers/fedbr/fig4 holds fedbr_fig4.
        if named.startswith("papers/") and "_".join(named.split("/")[1:]) == name:
            scenario: dict[str, Any] = read_yaml(file)
            return int(scenario["training"]["rounds"])
    return None


def _labels(said: dict[str, Any]) -> list[str]:
    """The methods whose mean a published number is: mostly one."""
    return list(said.get("mean_of") or [said["method"]])


def _compared(run: RunResult, said: dict[str, Any]) -> Comparison:
    metric = said["metric"]
    found = [_ours(run, said, label, result) for label in _labels(said) for result in run.results[label]]
    known = [each for each in found if each is not None]
    value = said.get("value")
    bound = "more than" if said.get("more_than") else "less than" if said.get("less_than") else ""
    dimension = "fraction" if metric.startswith("accuracy") else metric.removesuffix("_to").removesuffix("_a_round")
    better = -1.0 if dimension == "fraction" else 1.0
    return Comparison(
        method=said["method"],
        metric=_words(said),
        dimension=dimension,
        published=value,
        bound=bound,
        order=float(said["rank"]) if value is None else better * float(value) + _BEYOND.get(bound, 0.0),
        ours=fmean(known) if found and len(known) == len(found) else None,
        source=said["source"],
    )


_BEYOND = {"more than": 0.5, "less than": -0.5}
"""Where 1000+ stands in an order of rounds."""


def _words(said: dict[str, Any]) -> str:
    """Which number it is."""
    words = str(said["metric"]).replace("_", " ")
    if said.get("accuracy"):
        words += f" {100 * said['accuracy']:g} %"
    if said.get("round"):
        words += f" at round {said['round']}"
    for kind in ("seconds", "bytes"):
        if said.get(kind):
            words += f" within {quantity(said[kind], kind)}"
    return words


def _ours(run: RunResult, said: dict[str, Any], label: str, result: SeedResult) -> float | None:
    """One seed's number."""
    metric = said["metric"]
    if metric in ("accuracy_personalised", "accuracy_gain"):
        return _of_clients(result, metric)
    rows = _counted(run.rounds_of(label, result.seed), said, run.scenario.get("target_metric") or "accuracy")
    if not rows:
        return None
    if metric in ("accuracy", "accuracy_ema", "accuracy_best", "loss"):
        return _evaluated(rows, metric)
    kind = metric.removesuffix("_to")
    if kind == "bytes":
        return float(sum(row["bytes_down"] + row["bytes_up"] for row in rows))
    if kind == "seconds_a_round":
        return float(rows[-1]["seconds"] / rows[-1]["round"])
    return float(rows[-1]["round" if kind == "rounds" else kind])


def _of_clients(result: SeedResult, metric: str) -> float | None:
    """The clients' accuracy by images after personalisation, or what they gained by it."""
    fitted, shared = result.personalisation, result.clients
    if fitted is None or shared is None:
        return None
    return fitted.cumulative - (shared.cumulative if metric == "accuracy_gain" else 0.0)


def _evaluated(rows: list[dict[str, Any]], metric: str) -> float | None:
    """The last evaluation, or the best one."""
    column = "accuracy" if metric == "accuracy_best" else metric
    known = [row[column] for row in rows if row[column] is not None and row[column] == row[column]]
    return None if not known else max(known) if metric == "accuracy_best" else known[-1]


def _counted(table: pa.Table, said: dict[str, Any], target: str) -> list[dict[str, Any]]:
    """The rounds that a number is about; none where the run did not come so far.

    Args:
        table: a method's and seed's rounds.
        said: the published number.
        target: the column that has to reach an accuracy.
    """
    columns = ["round", "seconds", "accuracy", "accuracy_ema", "loss", "bytes_down", "bytes_up"]
    rows = _afforded(table.select(columns).to_pylist(), said)
    last = said.get("round")
    if last is not None:
        rows = [row for row in rows if row["round"] <= last]
        if not rows or rows[-1]["round"] < last:
            return []
    if not said["metric"].endswith("_to"):
        return rows
    reached = next((n for n, row in enumerate(rows) if _at_least(row[target], said["accuracy"])), None)
    return [] if reached is None else rows[: reached + 1]


def _afforded(rows: list[dict[str, Any]], said: dict[str, Any]) -> list[dict[str, Any]]:
    """The rounds that ended within the seconds and bytes that the paper allows."""
    spent = accumulate(row["bytes_down"] + row["bytes_up"] for row in rows)
    seconds, bytes = said.get("seconds"), said.get("bytes")
    return [
        row
        for row, moved in zip(rows, spent, strict=True)
        if (seconds is None or row["seconds"] <= seconds) and (bytes is None or moved <= bytes)
    ]


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
        f"{comparison.bound} {published}".strip(),
        "–" if comparison.ours is None else _shown(comparison.ours, comparison),
        "–" if gap is None else sign + _shown(gap, comparison),
        comparison.source,
    )


def _shown(value: float, comparison: Comparison) -> str:
    return f"{value:.4g}" if comparison.dimension in ("rounds", "loss") else quantity(value, comparison.dimension)


def orderings(found: list[Comparison]) -> list[str]:
    """For each metric a sentence that says whether our methods come in the paper's order.

    Numbers are ordered among each other, and so are the places that one source gives without numbers.
    Two methods keep the order where ours differ the same way. A method that never reached a target comes after all that
    did. Methods that the paper shows as equal, or without any number of ours, are not compared.
    """
    groups: dict[tuple[str, str], list[Comparison]] = {}
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


def _kept(better: Comparison, worse: Comparison) -> bool:
    if better.ours is None or worse.ours is None:
        return better.ours is not None and better.dimension != "fraction"
    sign = -1 if better.dimension == "fraction" else 1
    return sign * better.ours < sign * worse.ours
