"""The picture of predicted over measured seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgefl.report.figure_file import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


STEPS = {"all": "o", "head": "^"}
"""The markers of steps that train all parameters, and of those that train the head."""
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#4D4D4D", "#882255", "#B8B8B8")
BAND = 0.25
"""The relative error whose band is drawn."""


def predicted_figure(
    title: str,  # the figure's title
    # family (its colour), kind (its marker), measured and predicted seconds, which are positive
    points: Sequence[tuple[str, str, float, float]],
    *,
    of: str = "a step",  # what the seconds are those of
    markers: Mapping[str, str] = STEPS,  # the marker of each kind
    # what the markers mean, the second line of the title
    legend: str = "circles: all parameters trained; triangles: the head alone",
) -> Figure:
    """Predicted over measured seconds on logarithmic axes, with the diagonal and a band of ±25 %."""
    figure = new_figure(figsize=(8.2, 6.2), layout="constrained")
    axes = figure.add_subplot()
    numbers = [number for *_, measured, predicted in points for number in (measured, predicted)]
    ends = (min(numbers) / 1.3, max(numbers) * 1.3)
    axes.plot(ends, ends, color="black", linewidth=1)
    lower, upper = ([end * factor for end in ends] for factor in (1 - BAND, 1 + BAND))
    axes.fill_between(ends, lower, upper, color="black", alpha=0.08, linewidth=0, label=f"±{BAND:.0%}")
    for index, family in enumerate(sorted({point[0] for point in points})):
        colour = COLOURS[index % len(COLOURS)]
        filled, label = colour if index < len(COLOURS) else "none", family
        for kind, marker in markers.items():
            if mine := [point[2:] for point in points if point[:2] == (family, kind)]:
                x, y = zip(*mine, strict=True)
                axes.scatter(x, y, marker=marker, s=38, facecolors=filled, edgecolors=colour, label=label)
                label = ""
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
    axes.set(xlabel=f"measured seconds of {of}", ylabel=f"predicted seconds of {of}")
    axes.set_title(f"{title}\n{legend}", fontsize=10)
    figure.legend(loc="outside right upper", fontsize=8, frameon=False)
    return figure


_Grid = np.ndarray[Any, np.dtype[np.float64]]


def landscape_figure(panels: list[tuple[str, _Grid, _Grid, tuple[float, float]]]) -> Figure:
    """One panel for each model, all with the same colour scale, so that flat and sharp minima are easy to compare.

    Of each its title, the steps along both sides, the losses (row i at the i-th step along the second eigenvector), and
    the two eigenvalues.
    """
    figure = new_figure(figsize=(3.4 * len(panels) + 0.8, 3.6), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    low = min(float(np.nanmin(losses)) for _, _, losses, _ in panels)
    high = max(float(np.nanmax(losses)) for _, _, losses, _ in panels)
    levels = np.linspace(low, high if high > low else low + 1.0, 25)
    for axis, (title, steps, losses, values) in zip(axes, panels, strict=True):
        drawn = axis.contourf(steps, steps, losses, levels=levels, cmap="viridis")
        axis.contour(steps, steps, losses, levels=levels[::3], colors="white", linewidths=0.5)
        axis.plot(0, 0, marker="x", color="white")
        labels = {"xlabel": f"along v₁ (λ = {values[0]:.3g})", "ylabel": f"along v₂ (λ = {values[1]:.3g})"}
        axis.set(title=title, aspect="equal", **labels)
    figure.colorbar(drawn, ax=list(axes), label="cross-entropy")
    return figure
