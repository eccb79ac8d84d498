"""The best method's differences from all others at the end of a run: as data, and as a table."""

from __future__ import annotations

from collections.abc import Callable

from edgefl.record.summary import SeedResult
from edgefl.report.grid import Cell, Grid, Head
from edgefl.report.paired import BySeed, Comparison, Difference, compared
from edgefl.report.quantities import unit_for
from edgefl.report.run_record import RunRecord


def figures_by_seed(run: RunRecord, figure: Callable[[SeedResult], float | None]) -> dict[str, BySeed]:
    """A figure by method and seed; methods without the figure in any seed are omitted."""
    found = {label: {each.seed: figure(each) for each in results} for label, results in run.results.items()}
    known = {label: {seed: value for seed, value in each.items() if value is not None} for label, each in found.items()}
    return {label: each for label, each in known.items() if each and len(each) == len(found[label])}


def final_metrics(run: RunRecord) -> dict[str, BySeed]:
    """The metric of the last model, or its moving average if targets refer to it; untrained models are omitted."""

    def metric_of(result: SeedResult) -> float | None:
        if result.trained_nothing:
            return None
        return result.metric.ema if run.smoothed else result.metric.final

    return figures_by_seed(run, metric_of)


def compare_methods(run: RunRecord) -> Comparison | None:
    """The methods of a run compared by seed, by the metric of their last models.

    Returns:
        The comparison of the best method with the others; ``None`` if fewer than two methods have a metric.
    """
    found = final_metrics(run)
    return compared(found, highest=run.metric.better == "higher") if len(found) > 1 else None


def difference_data(run: RunRecord) -> list[dict[str, object]]:
    """For JSON: the best method minus each other one, in the metric's unit; empty with fewer than two methods."""
    standing = compare_methods(run)
    if standing is None:
        return []
    return [
        {
            "method": standing.best,
            "other": each.label,
            "seeds": len(each.values),
            "mean": each.interval.mean if each.values else None,
            "half_width": each.interval.half_width if len(each.values) > 1 else None,
            "confidence": each.confidence,
            "p": each.p,
            "sign_flip_p": each.sign_flip_p,
            "tied": each.tied,
        }
        for each in standing.differences
    ]


def difference_grid(run: RunRecord) -> Grid | None:
    """The differences as a table; ``None`` if no two methods have two seeds in common."""
    standing = compare_methods(run)
    if standing is None or all(len(each.values) < 2 for each in standing.differences):
        return None
    unit = unit_for([each.interval.mean for each in standing.differences], run.metric.dimension)
    heads = [
        Head("compared with", text=True),
        Head("difference", "points" if run.metric.share else unit.symbol),
        Head("confidence", "%"),
        Head("p", "Student's t"),
        Head("p", "sign flips"),
        Head("seeds"),
    ]
    return Grid(heads, [_cells(each, run) for each in standing.differences], _notes(standing, run))


def _cells(each: Difference, run: RunRecord) -> list[Cell]:
    unit = unit_for([each.interval.mean], run.metric.dimension)
    if len(each.values) < 2:
        return [Cell(each.label), *[Cell("–")] * 4, Cell(str(len(each.values)))]
    spread = f"±{unit.interval(each.interval.half_width, each.interval.mean)}" if each.interval.half_width else ""
    ps = [Cell("–") if p is None else Cell(f"{p:.2g}") for p in (each.p, each.sign_flip_p)]
    confidence = Cell(f"{100 * each.confidence:.4g}")
    return [
        Cell(each.label),
        Cell(unit.number(each.interval.mean), spread),
        confidence,
        *ps,
        Cell(str(len(each.values))),
    ]


def _notes(standing: Comparison, run: RunRecord) -> list[str]:
    name = f"smoothed {run.metric.word}" if run.smoothed else run.metric.word
    lines = [
        f"The {name} of {standing.best} minus that of each other method at the end, mean over the seeds. The intervals "
        "have the level of 5 % for all comparisons together (Holm); the p-values are not adjusted."
    ]
    if any(len(each.values) < 6 for each in standing.differences):
        lines.append(
            "The test with sign flips does not assume a normal distribution. With n seeds its p-value is at least "
            "2/2ⁿ, so it can confirm a difference at the 5 % level from six seeds on."
        )
    return lines
