"""The run's picture: the metric over virtual time and over bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgefl.files import writing
from edgefl.record.metric import Metric
from edgefl.report.curves import Curve, curve_of, mean_curve, metric_of
from edgefl.report.figure_file import draw, new_figure
from edgefl.report.quantities import limit, unit_for
from edgefl.report.run_result import RunResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette for colour-blind readers, without the light yellow, which is not visible on white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00")
_LINES: tuple[Any, ...] = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_POINTS = 200  # samples along a mean line


def write_pictures(run: RunResult) -> list[Path]:
    """Write ``accuracy.png`` into the run directory, unless nothing was trained.

    Returns:
        The written files.
    """
    if not run.trained:
        return []
    path = run.paths.picture
    with writing(path) as file:
        draw(accuracy_figure(run), file, "png")
    return [path]


def accuracy_figure(run: RunResult) -> Figure:
    """Two panels, the metric over virtual time and over bytes in both directions.

    Each method has its own colour, dash and marker. The line is the mean over seeds, up to the end of the shortest
    seed; the band extends from the lowest seed to the highest. Targets are grey horizontal lines; a budget on seconds
    or bytes is a vertical line in its panel, and a cross marks the end of a method's joules or FLOPs.
    """
    figure = new_figure(figsize=(9.0, 4.3), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    curves = {label: _curves(run, label) for label in run.labels}
    panels = (("seconds", "virtual time"), ("bytes", "bytes down and up"))
    for ax, (kind, name) in zip(axes, panels, strict=True):
        unit = unit_for([float(curve.spent[kind][-1]) for found in curves.values() for curve in found], kind)
        for number, (label, found) in enumerate(curves.items()):
            _draw_method(ax, found, kind, unit.scale, label=label, number=number)
        for number, found in enumerate(curves.values()):
            _draw_exhausted(ax, run, found, kind, unit.scale, colour=_COLOURS[number % len(_COLOURS)])
        _draw_limits(ax, run, kind, unit.scale)
        ax.set_xlabel(f"{name}, {unit.symbol}")
        ax.set_xlim(left=0)
        ax.grid(color="0.92", linewidth=0.8)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
    lowest = _lowest(run, curves)
    if lowest is None:
        axes[0].set_yscale("log")
    else:
        axes[0].set_ylim(bottom=lowest)
    seeds = len(run.seeds)
    unit_of_metric = ", %" if run.metric.share else ""
    start = f" (axis starts at {lowest:g} %)" if lowest else ""
    axes[0].set_ylabel(f"{'smoothed ' if run.smoothed else ''}test {run.metric.word}{unit_of_metric}{start}")
    figure.suptitle(
        f"{run.name}: mean{' and range' if seeds > 1 else ''} of {seeds} seed{'s' * (seeds > 1)}", fontsize=11
    )
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 6), frameon=False)
    return figure


def _shown(metric: Metric) -> float:
    """The factor by which a metric is shown: shares in percent."""
    return 100.0 if metric.share else 1.0


def _curves(run: RunResult, label: str) -> list[Curve]:
    """The curves of a method's seeds, as shown; seeds without an evaluation are omitted."""
    found = [curve_of(run, label, result.seed, metric_of(run)) for result in run.results[label]]
    return [curve._replace(values=_shown(run.metric) * curve.values) for curve in found if len(curve.values)]


def _targets(run: RunResult) -> list[float]:
    """The values of all targets, as shown."""
    found = {target.value for results in run.results.values() for result in results for target in result.targets}
    return sorted(_shown(run.metric) * value for value in found)


def _lowest(run: RunResult, curves: dict[str, list[Curve]]) -> float | None:
    """The start of the axis; ``None``: it is logarithmic, because values differ by a factor of 20 and more.

    Shares start 25 points below the lowest target if all curves reach it, all others at 0.
    """
    targets = _targets(run)
    found = [curve for method in curves.values() for curve in method]
    if not run.metric.share:
        ends = [float(end) for curve in found for end in (curve.values.min(), curve.values.max())]
        return None if ends and max(ends) > 20 * min(ends) > 0 else 0.0
    reached = min((float(curve.values.max()) for curve in found), default=0.0)
    return max(0.0, targets[0] - 25) if targets and reached >= targets[0] else 0.0


def _draw_method(ax: Axes, found: Sequence[Curve], kind: str, scale: float, *, label: str, number: int) -> None:
    if not found:
        return
    curve = mean_curve(found, kind, _POINTS)
    axis = curve.axis / scale
    colour = _COLOURS[number % len(_COLOURS)]
    if len(found) > 1:
        ax.fill_between(axis, curve.low, curve.high, color=colour, alpha=0.15, linewidth=0)
    ax.plot(
        axis,
        curve.mean,
        color=colour,
        linestyle=_LINES[number % len(_LINES)],
        linewidth=1.6,
        marker=_MARKERS[number % len(_MARKERS)],
        markersize=5,
        markevery=[*range(20 + 7 * (number % 4), _POINTS - 15, 45), _POINTS - 1],
        label=label,
    )


def _draw_limits(ax: Axes, run: RunResult, kind: str, scale: float) -> None:
    """Draw targets as horizontal lines, and budgets of this panel's kind as vertical lines."""
    results = [result for found in run.results.values() for result in found]
    falling = run.metric.better == "lower"  # the curves leave the other side free
    for target in _targets(run):
        ax.axhline(target, color="0.45", linestyle=(0, (4, 3)), linewidth=0.9, zorder=1)
        ax.annotate(
            f"target {limit(target / _shown(run.metric), run.metric.dimension)}",
            (1.0 if falling else 0.0, target),
            xycoords=("axes fraction", "data"),
            xytext=(-4 if falling else 4, 2),
            textcoords="offset points",
            ha="right" if falling else "left",
            fontsize=8,
            color="0.3",
            bbox={"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 0.5},
            zorder=4,
        )
    reach = ax.dataLim.xmax * scale
    for budget in sorted({budget.limit for result in results for budget in result.budgets if budget.kind == kind}):
        text = f"budget {limit(budget, kind)}"
        style: dict[str, Any] = {"textcoords": "offset points", "ha": "right", "fontsize": 8, "color": "0.2"}
        if budget > 1.25 * reach:  # a line far to the right would compress the curves
            ax.annotate(f"{text} →", (1.0, 0.02), xycoords="axes fraction", xytext=(-3, 0), **style)
            continue
        ax.axvline(budget / scale, color="0.2", linestyle=":", linewidth=1.2, zorder=1)
        place: dict[str, Any] = {
            "xycoords": ("data", "axes fraction"),
            "xytext": (-3, 0),
            "rotation": 90,
            "va": "bottom",
        }
        ax.annotate(text, (budget / scale, 0.02), **place, **style)


def _draw_exhausted(ax: Axes, run: RunResult, found: Sequence[Curve], kind: str, scale: float, *, colour: str) -> None:
    """Draw a cross on the mean line where the joules or FLOPs are used up, if they are in every seed."""
    results = [result for results in run.results.values() for result in results]
    limits = sorted({(b.kind, b.limit) for result in results for b in result.budgets if b.kind in ("joules", "flops")})
    cross: dict[str, Any] = {"marker": "x", "markersize": 9, "markeredgewidth": 2.5, "linestyle": "none"}
    for other, amount in limits:
        if not found or any(curve.spent[other][-1] < amount for curve in found):
            continue
        drawn = mean_curve(found, kind, _POINTS)
        where = min(
            drawn.axis[-1], np.mean([np.interp(amount, curve.spent[other], curve.spent[kind]) for curve in found])
        )
        height = np.interp(where, drawn.axis, drawn.mean)
        ax.plot(where / scale, height, color=colour, zorder=5, **cross)
        name = f"{limit(amount, other)} spent"
        if name not in ax.get_legend_handles_labels()[1]:
            ax.plot([], [], color="0.1", label=name, **cross)
