"""Figures of the loss landscape around a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgefl.report.figure_file import new_figure, write_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_Grid = np.ndarray[Any, np.dtype[np.float64]]


def landscape_figure(panels: list[tuple[str, _Grid, _Grid, tuple[float, float]]]) -> Figure:
    """One panel for each model, all with the same colour scale, so that flat and sharp minima are easy to compare.

    Args:
        panels: title, steps along both sides ``[n]``, losses ``[n, n]`` (row i at the i-th step along the second
            eigenvector), and the two eigenvalues.
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
        axis.set_title(title)
        axis.set_xlabel(f"along v₁ (λ = {values[0]:.3g})")
        axis.set_ylabel(f"along v₂ (λ = {values[1]:.3g})")
        axis.set_aspect("equal")
    figure.colorbar(drawn, ax=list(axes), label="cross-entropy")
    return figure


def write_landscape(panels: list[tuple[str, _Grid, _Grid, tuple[float, float]]], path: Path) -> None:
    """Draw :func:`landscape_figure` into a file; the file extension sets the format.

    Raises:
        UserError: the file cannot be written.
    """
    write_figure(landscape_figure(panels), path)
