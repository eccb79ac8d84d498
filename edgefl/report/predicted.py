"""The picture of predicted over measured seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgefl.report.figure_file import new_figure, write_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEPS = {"all": "o", "head": "^"}
"""The markers of steps that train all parameters, and of those that train the head."""
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#4D4D4D", "#882255", "#B8B8B8")
BAND = 0.25
"""The relative error whose band is drawn."""


def predicted_figure(
    title: str,
    points: Sequence[tuple[str, str, float, float]],
    *,
    of: str = "a step",
    markers: Mapping[str, str] = STEPS,
    legend: str = "circles: all parameters trained; triangles: the head alone",
) -> Figure:
    """Predicted over measured seconds on logarithmic axes, with the diagonal and a band of ±25 %.

    Args:
        title: the figure's title.
        points: family (its colour), kind (its marker), measured and predicted seconds, which are positive.
        of: what the seconds are those of.
        markers: the marker of each kind.
        legend: what the markers mean, the second line of the title.
    """
    figure = new_figure(figsize=(8.2, 6.2), layout="constrained")
    axes = figure.add_subplot()
    numbers = [number for *_, measured, predicted in points for number in (measured, predicted)]
    ends = (min(numbers) / 1.3, max(numbers) * 1.3)
    axes.plot(ends, ends, color="black", linewidth=1)
    lower, upper = ([end * factor for end in ends] for factor in (1 - BAND, 1 + BAND))
    axes.fill_between(ends, lower, upper, color="black", alpha=0.08, linewidth=0, label=f"±{BAND:.0%}")
    for index, family in enumerate(sorted({point[0] for point in points})):
        colour = _COLOURS[index % len(_COLOURS)]
        filled = index < len(_COLOURS)
        label = family
        for kind, marker in markers.items():
            mine = [point for point in points if point[:2] == (family, kind)]
            if mine:
                axes.scatter(
                    [measured for *_, measured, _ in mine],
                    [predicted for *_, predicted in mine],
                    marker=marker,
                    s=38,
                    facecolors=colour if filled else "none",
                    edgecolors=colour,
                    label=label,
                )
                label = ""
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
    axes.set_xlabel(f"measured seconds of {of}")
    axes.set_ylabel(f"predicted seconds of {of}")
    axes.set_title(f"{title}\n{legend}", fontsize=10)
    figure.legend(loc="outside right upper", fontsize=8, frameon=False)
    return figure


def write_predicted(figure: Figure, path: Path) -> None:
    """Draw the figure into a file; the file extension sets the format.

    Raises:
        UserError: the file cannot be written.
    """
    write_figure(figure, path)
