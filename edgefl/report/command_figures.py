"""The pictures of commands: predicted over measured seconds, the landscape of a loss, and who holds what data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edgefl.report.figure_file import new_figure, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_Integers = NDArray[np.int64]
_Floats = NDArray[np.float64]

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


def landscape_figure(panels: list[tuple[str, _Floats, _Floats, tuple[float, float]]]) -> Figure:
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


MOST_NUMBERED = 40
"""Clients that are drawn in the order of their numbers; more are sorted."""
MOST_BARS = 128
"""Clients with a bar of their own; if there are more, a bar is the mean of a group of clients."""
MOST_CATEGORIES = 256
"""Categories that are drawn as parts of bars."""
# Okabe and Ito's palette for colour-blind readers, and three more; neighbours differ in lightness.
_COLOURS = [*COLOURS[:7], "#F0E442", *COLOURS[7:]]
_PLAIN = "#4C78A8"
_BINS = 24


def holdings_figure(
    title: str,  # the figure's title
    what: str,  # what the categories are, such as classes
    sizes: _Integers,  # training samples of each client
    *,
    counts: _Integers | None = None,  # samples of each category on each client; None: targets are no categories
    distances: _Floats | None = None,  # distance of each client's shares from those of all clients
    means: _Floats | None = None,  # the mean target of each client
    names: Sequence[str] = (),  # names of the categories; without, their numbers
) -> Figure:
    """A bar for each client with its classes as parts, and distributions over clients next to them."""
    figure = new_figure(figsize=(11.0, 4.8), layout="constrained")
    distributions = [(sizes.astype(np.float64), "training samples of a client", (0.0, float(sizes.max())))]
    if distances is not None:
        distributions.append((distances, "distance from the whole (total variation)", (0.0, 1.0)))
    if means is not None:
        low, high = float(np.nanmin(means)), float(np.nanmax(means))
        ends = (low, high) if high > low else (low - 0.5, high + 0.5)
        distributions.append((means, "mean target of a client", ends))
    grid = figure.add_gridspec(len(distributions), 2, width_ratios=(3.1, 1))
    bars = figure.add_subplot(grid[:, 0])
    parts = counts if counts is not None and counts.shape[1] <= MOST_CATEGORIES else None
    # What differs more decides the order of many clients.
    by_size = parts is None or distances is None or sizes.std() / sizes.mean() >= np.nanmean(distances)
    _draw_bars(bars, sizes, parts, what, names, by_size=bool(by_size))
    for row, (values, name, limits) in enumerate(distributions):
        _draw_histogram(figure.add_subplot(grid[row, 1]), values, name, limits)
    figure.suptitle(title, fontsize=12)
    return figure


def _draw_bars(
    ax: Axes, sizes: _Integers, counts: _Integers | None, what: str, names: Sequence[str], *, by_size: bool
) -> None:
    clients = len(sizes)
    # In units of samples: targets of several labels or tokens have more counts than samples.
    shares = None if counts is None else counts * (sizes / np.maximum(counts.sum(axis=1), 1))[:, None]
    heights = sizes[:, None].astype(np.float64) if shares is None else shares
    if clients > MOST_NUMBERED:
        order = np.argsort(-sizes, kind="stable") if by_size or shares is None else _alike(shares)
        together = -(-clients // MOST_BARS)
        groups = [order[start : start + together] for start in range(0, clients, together)]
        heights = np.stack([heights[group].mean(axis=0) for group in groups])
        sorted_by = "size" if by_size else f"the most frequent of their {what}"
        means = f"; each bar is the mean of {together}" if together > 1 else ""
        ax.set_xlabel(f"{clients:,} clients, sorted by {sorted_by}{means}")
        ax.set_xticks([])
    else:
        ax.set_xlabel("client")
        ax.set_xticks(range(0, clients, 1 if clients <= 20 else 5))
    places, bottom = np.arange(len(heights)), np.zeros(len(heights))
    thin = heights.shape[1] > 20 or len(heights) > MOST_NUMBERED
    edge: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.0 if thin else 0.4}
    width = 0.86 if len(heights) <= MOST_NUMBERED else 0.92
    colours = [_PLAIN] if shares is None else _colours(heights.shape[1])
    for category, colour in enumerate(colours):
        ax.bar(places, heights[:, category], width, bottom=bottom, color=colour, **edge)
        bottom += heights[:, category]
    ax.set_ylabel("training samples")
    ax.set_xlim(-0.8, len(heights) - 0.2)
    ax.margins(y=0.02)
    plain(ax, "y", ("top", "right", "bottom"))
    ax.tick_params(axis="x", length=0)
    if shares is not None:
        _draw_key(ax, colours, what, names)


def _alike(shares: _Floats) -> _Integers:
    """Clients in the order of their most frequent category, and of its share."""
    most = shares.argmax(axis=1)
    share = shares.max(axis=1) / np.maximum(shares.sum(axis=1), 1e-12)
    return np.lexsort((-share, most))


def _colours(categories: int) -> list[Any]:
    if categories <= len(_COLOURS):
        return _COLOURS[:categories]
    import matplotlib as mpl

    return list(mpl.colormaps["turbo"](np.linspace(0.04, 0.96, categories)))


def _draw_key(ax: Axes, colours: list[Any], what: str, names: Sequence[str]) -> None:
    """The colours of the categories, in a row above the bars."""
    from matplotlib.colors import ListedColormap

    count = len(colours)
    key = ax.inset_axes((0.0, 1.03, 1.0, 0.035))
    key.imshow(np.arange(count)[None], cmap=ListedColormap(colours), aspect="auto", vmin=-0.5, vmax=count - 0.5)
    step = max(1, -(-count // 20))
    key.set_xticks(range(0, count, step), names[::step] or None)
    key.set_yticks([])
    key.tick_params(axis="x", length=0, labelsize=8, top=False, bottom=False, labeltop=True, labelbottom=False, pad=2)
    key.set_ylabel(what, rotation=0, ha="right", va="center", fontsize=9, labelpad=6)
    key.spines[:].set_visible(False)


def _draw_histogram(ax: Axes, values: _Floats, name: str, limits: tuple[float, float]) -> None:
    counts, edges = np.histogram(values[~np.isnan(values)], bins=_BINS, range=limits)
    ax.bar(edges[:-1], counts, np.diff(edges), align="edge", color=_PLAIN, edgecolor="white", linewidth=0.4)
    ax.set(xlim=limits, xlabel=name, ylabel="clients")
    for axis in (ax.xaxis, ax.yaxis):
        axis.label.set_fontsize(9)
    ax.tick_params(labelsize=8)
    plain(ax, "y")
