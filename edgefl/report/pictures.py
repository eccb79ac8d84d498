"""Figures of the metric over what was spent: the run's picture, figures for papers, and those of the page."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgefl.errors import UserError, nearest
from edgefl.files import writing
from edgefl.record.figures import QUANTITIES, Quantity
from edgefl.record.metric import Metric
from edgefl.report.curves import Curve, curves_of, mean_curve
from edgefl.report.figure_file import draw, drawn, new_figure, plain
from edgefl.report.quantities import limit, unit_for
from edgefl.report.rows import named, named_methods
from edgefl.report.run_result import RunResult
from edgefl.wording import escape

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def axes_of(runs: Sequence[RunResult]) -> dict[str, Quantity]:
    """The x-axes by name: the quantities that can be one and that all runs have, rounds last."""
    own = [{each["name"] for each in run.summary.get("figures", ())} for run in runs]
    known = [each for each in QUANTITIES.values() if each.axis and (each.built_in or all(each.name in e for e in own))]
    return {each.axis.partition(",")[0]: each for each in sorted(known, key=lambda each: each.name == "rounds")}


# Okabe and Ito's palette for colour-blind readers, without the light yellow, which is not visible on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#22262B", "#56B4E9", "#E69F00")
_LINES: tuple[Any, ...] = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_POINTS = 200  # samples along a mean line


def write_pictures(run: RunResult) -> list[Path]:
    """Write ``accuracy.png`` into the run directory, unless nothing was trained; the written files."""
    if not run.trained:
        return []
    with writing(run.paths.picture) as file:
        draw(accuracy_figure([run]), file, "png")
    return [run.paths.picture]


def accuracy_figure(
    runs: Sequence[RunResult],  # the finished runs
    over: Sequence[str] = ("time", "traffic"),  # the x-axis of each panel
    methods: Sequence[str] = (),  # the labels of the methods shown; all if empty
    size: tuple[float, float] | None = None,  # inches; by default as wide as a page, or a panel of about half of it
) -> Figure:
    """The metric over one or several costs, a panel for each.

    Each method has its own colour, dash and marker. The line is the mean over seeds, up to the end of the shortest
    seed; the band extends from the lowest seed to the highest. Targets are grey horizontal lines; a budget on the
    panel's cost is a vertical line, and a cross marks where another budget on joules or FLOPs is exhausted.

    Raises:
        UserError: no run has such a method, or not all have such an axis.
    """
    run, count = runs[0], len(over)
    figure = new_figure(figsize=size or (9.0 if count > 1 else 5.0, 4.3 if count > 1 else 3.6), layout="constrained")
    axes = list(figure.subplots(1, count, sharey=True, squeeze=False)[0])
    curves = _curves_of(runs, methods)
    lowest = _lowest(run.metric, curves)
    known = axes_of(runs)
    for ax, axis in zip(axes, over, strict=True):
        if axis not in known:
            raise UserError(f"no x-axis '{axis}' of these runs; {nearest(axis, known)}", file=str(run.path))
        kind, name = known[axis].name, known[axis].axis
        largest = [float(curve.spent[kind][-1]) for curve in chain.from_iterable(curves.values())]
        unit = unit_for(largest, "count" if kind == "rounds" else kind)
        for number, (label, found) in enumerate(curves.items()):
            _draw_method(ax, found, kind, unit.scale, label=label, number=number)
        for number, found in enumerate(curves.values()):
            _draw_exhausted(ax, runs, found, kind, unit.scale, colour=COLOURS[number % len(COLOURS)])
        _draw_limits(ax, runs, kind, unit.scale, lowest or 0.0)
        ax.set_xlabel(f"{name}, {unit.symbol}" if unit.symbol else name)
        ax.set_xlim(left=0)
        plain(ax)
    if lowest is None:
        axes[0].set_yscale("log")
    else:
        axes[0].set_ylim(bottom=lowest)
    unit_of_metric = ", %" if run.metric.share else ""
    start = f" (axis starts at {lowest:g} %)" if lowest else ""
    axes[0].set_ylabel(f"{'smoothed ' if run.smoothed else ''}test {run.metric.word}{unit_of_metric}{start}")
    if count > 1:
        seeds = len(run.seeds)
        mean = f"mean{' and range' if seeds > 1 else ''} of {seeds} seed{'s' * (seeds > 1)}"
        figure.suptitle(f"{' | '.join(named(runs))}: {mean}", fontsize=11)
    handles, labels = axes[0].get_legend_handles_labels()
    columns = _columns(labels, 72 * figure.get_figwidth())
    figure.set_figheight(figure.get_figheight() + 0.2 * max(0, math.ceil(len(labels) / columns) - 2))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
    return figure


def _columns(labels: Sequence[str], points: float) -> int:
    """The number of columns of a legend that is not wider than this, as matplotlib fills them."""
    widths = [6.5 * len(each) + 48 for each in labels]  # of letters of 10 points, and of the line and gaps
    fits = [n for n in range(1, len(labels) + 1) if sum(map(max, np.array_split(widths, n))) <= points]
    return max(fits, default=1)


def _curves_of(runs: Sequence[RunResult], methods: Sequence[str]) -> dict[str, list[Curve]]:
    """The curves of each method's seeds; its name contains the run's if there are several runs."""
    known = list(dict.fromkeys(label for run in runs for label in run.labels))
    for method in methods:
        if method not in known:
            raise UserError(f"no method '{method}' in this run; {nearest(method, known)}", file=str(runs[0].path))
    return {
        escape(name).replace("$", r"\$"): [
            curve._replace(values=_shown(run.metric) * curve.values) for curve in curves_of(run, label)
        ]
        for run, label, name in named_methods(runs)
        if not methods or label in methods
    }


def _shown(metric: Metric) -> float:
    """The factor by which a metric is shown: shares in percent."""
    return 100.0 if metric.share else 1.0


def _budgets(runs: Sequence[RunResult]) -> list[tuple[str, float]]:
    return sorted({each for run in runs for each in run.budgets})


def _lowest(metric: Metric, curves: Mapping[str, Sequence[Curve]]) -> float | None:
    """The start of the axis, below every curve; ``None``: it is logarithmic, because values differ by a factor of 20.

    Shares start at a multiple of ten, all others at 0.
    """
    ends = [float(end) for found in curves.values() for each in found for end in (each.values.min(), each.values.max())]
    if metric.share:
        return max(0.0, 10 * math.floor(min(ends) / 10)) if ends else 0.0
    return None if ends and max(ends) > 20 * min(ends) > 0 else 0.0


def _draw_method(ax: Axes, found: Sequence[Curve], kind: str, scale: float, *, label: str, number: int) -> None:
    if not found:
        return
    curve = mean_curve(found, kind, _POINTS)
    axis = curve.axis / scale
    colour, line = COLOURS[number % len(COLOURS)], _LINES[number % len(_LINES)]
    if len(found) > 1:
        ax.fill_between(axis, curve.low, curve.high, color=colour, alpha=0.15, linewidth=0)
    places = [*range(20 + 7 * (number % 4), _POINTS - 15, 45), _POINTS - 1]
    marks: dict[str, Any] = {"marker": _MARKERS[number % len(_MARKERS)], "markersize": 5, "markevery": places}
    ax.plot(axis, curve.mean, color=colour, linestyle=line, linewidth=1.6, label=label, **marks)


def _draw_limits(ax: Axes, runs: Sequence[RunResult], kind: str, scale: float, lowest: float) -> None:
    """Draw targets, those below ``lowest`` only as words, and budgets of this panel's kind as vertical lines."""
    metric = runs[0].metric
    falling = metric.better == "lower"  # the curves leave the other side free
    for number, target in enumerate(sorted({_shown(metric) * goal for run in runs for goal in run.goals})):
        if not (below := target < lowest):
            ax.axhline(target, color="0.45", linestyle=(0, (4, 3)), linewidth=0.9, zorder=1)
        text = f"target {limit(target / _shown(metric), metric.dimension)}{' ↓' * below}"
        style: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8, "color": "0.3", "zorder": 4}
        style |= {"xycoords": ("axes fraction", "data"), "xytext": (-4 if falling else 4, 2 + 11 * number * below)}
        style |= {"bbox": {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 0.5}}
        place = (1.0 if falling else 0.0, max(target, lowest))
        ax.annotate(text, place, ha="right" if falling else "left", **style)
    reach = ax.dataLim.xmax * scale
    for budget in [amount for of, amount in _budgets(runs) if of == kind]:
        text = f"budget {limit(budget, kind)}"
        style = {"textcoords": "offset points", "ha": "right", "fontsize": 8, "color": "0.2"}
        if budget > 1.25 * reach:  # a line far to the right would compress the curves
            ax.annotate(f"{text} →", (1.0, 0.02), xycoords="axes fraction", xytext=(-3, 0), **style)
            continue
        ax.axvline(budget / scale, color="0.2", linestyle=":", linewidth=1.2, zorder=1)
        style |= {"xycoords": ("data", "axes fraction"), "xytext": (-3, 0), "rotation": 90, "va": "bottom"}
        ax.annotate(text, (budget / scale, 0.02), **style)


def _draw_exhausted(
    ax: Axes, runs: Sequence[RunResult], found: Sequence[Curve], kind: str, scale: float, *, colour: str
) -> None:
    """Draw a cross on the mean line where another budget is used up, if they are in every seed."""
    others = {each.name for each in QUANTITIES.values() if each.axis and each.limit} - {"seconds", "bytes", kind}
    cross: dict[str, Any] = {"marker": "x", "markersize": 9, "markeredgewidth": 2.5, "linestyle": "none"}
    for other, amount in _budgets(runs):
        if other not in others or not found or any(curve.spent[other][-1] < amount for curve in found):
            continue
        drawn = mean_curve(found, kind, _POINTS)
        where = min(drawn.axis[-1], np.mean([np.interp(amount, each.spent[other], each.spent[kind]) for each in found]))
        height = np.interp(where, drawn.axis, drawn.mean)
        ax.plot(where / scale, height, color=colour, zorder=5, **cross)
        name = f"{limit(amount, other)} spent"
        if name not in ax.get_legend_handles_labels()[1]:
            ax.plot([], [], color="0.1", label=name, **cross)


_SIZES = {"wide": (6.1, 4.0), "narrow": (3.7, 3.9)}
"""Inches on screens and paper, and on phones."""

_VARIABLES = {
    **{colour.lower(): f"var(--m{number})" for number, colour in enumerate(COLOURS)},
    "#000000": "var(--ink)",
    "#ffffff": "var(--card)",
    "#ebebeb": "var(--line)",
    **dict.fromkeys(["#333333", "#4c4c4c", "#737373"], "var(--quiet)"),
}


def drawings(runs: Sequence[RunResult]) -> dict[str, str]:
    """For each x-axis the elements of its picture, in a wide and a narrow form."""
    metric = runs[0].metric.word
    return {
        over: elements(over, f"{metric} over {over}", partial(accuracy_figure, runs, [over])) for over in axes_of(runs)
    }


def elements(name: str, label: str, figure: Callable[..., Figure]) -> str:
    """The elements of the page for a figure of a ``size``, in a wide and a narrow form; ``name`` is only theirs."""
    return "".join(
        _element(drawn(figure(size=size), "svg").decode(), name, width, label) for width, size in _SIZES.items()
    )


def _element(file: str, name: str, width: str, label: str) -> str:
    """An SVG file as an element of the page: its own identifiers, few decimals, and the page's colours."""
    (box,) = re.findall(r'viewBox="([\d .]+)"', file)
    body = file[file.index("<defs>") :]
    body = re.sub(r'(id="|url\(#|href="#)', rf"\1{name}-{width}-", body)
    body = re.sub(r"(\d\.\d)\d+", r"\1", body)
    body = re.sub(r"#[0-9a-f]{6}\b", lambda found: _VARIABLES.get(found[0], found[0]), body)
    return f'<svg class="{width}" viewBox="{box}" role="img" aria-label="{label}">{body}'
