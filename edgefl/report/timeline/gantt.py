"""One round as a Gantt chart: a row for each client, a bar for each transfer, computation and framework's time."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edgefl.report.figure_file import new_figure, plain
from edgefl.report.timeline.data import Timeline
from edgefl.report.timeline.trace import window_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PREFETCH = "prefetch for the next round"
# Okabe and Ito's colours; hatches distinguish the bars without colour.
LOOKS: dict[str, dict[str, Any]] = {
    "download": {"color": "#0072B2", "hatch": ""},
    "framework": {"color": "#E69F00", "hatch": "\\\\"},
    "compute": {"color": "#D55E00", "hatch": "//"},
    "upload": {"color": "#009E73", "hatch": ".."},
    _PREFETCH: {"color": "#CC79A7", "hatch": "xx"},
    "cell and server": {"color": "#56B4E9", "hatch": "--"},
}
_ROWS = 60


class Bar(NamedTuple):
    """A transfer, a computation, or the framework's time; ``whole`` is false if it was aborted."""

    word: str
    started: float
    ended: float
    whole: bool


def gantt_figure(timeline: Timeline, number: int, title: str) -> Figure:
    """A Gantt chart of round ``number``, in which the client that closed the round is marked.

    Rows are ordered by the time at which their clients ended; clients that only receive a prefetch for the next round
    are last. Of each kind, at most sixty rows are drawn: of a large cohort, the sixty that ended last.
    """
    from matplotlib.patches import Patch

    window = window_of(timeline, (number, number))
    round = next(each for each in timeline.rounds if each.number == number)
    [bars] = bars_of(timeline, [number])
    prefetching = {name for name, found in bars.items() if all(bar.word == _PREFETCH for bar in found)}
    ordered = sorted(bars, key=lambda name: (max(bar.ended for bar in bars[name]), name))
    rows = [name for name in ordered if name not in prefetching][-_ROWS:]
    rows += [name for name in ordered if name in prefetching][:_ROWS]
    figure = new_figure(figsize=(9.5, max(2.6, 0.3 * len(rows) + 1.6)), layout="constrained")
    ax = figure.subplots()
    for row, name in enumerate(rows):
        both = name not in prefetching and any(bar.word == _PREFETCH for bar in bars[name])
        for bar in bars[name]:
            begin, end = max(bar.started, window.began), min(bar.ended, window.ended)
            thin = bar.word == _PREFETCH
            shift = (0.27 if thin else -0.12) if both else 0.0
            height = 0.2 if thin and both else 0.5 if both else 0.62
            looks = {"edgecolor": "white", "linewidth": 0.8, "alpha": 1.0 if bar.whole else 0.5, **LOOKS[bar.word]}
            ax.barh(row + shift, end - begin, left=begin - window.began, height=height, **looks)
    devices = {f"client {client}": timeline.device_of(client) for client in timeline.groups}
    ax.set_yticks(range(len(rows)), labels=[f"{name}, {devices[name]}" if name in devices else name for name in rows])
    for name, label in zip(rows, ax.get_yticklabels(), strict=True):
        label.set_fontweight("bold" if name == f"client {round.critical}" else "normal")
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.tick_params(left=False)
    plain(ax, "x", ("top", "right", "left"))
    ax.grid(axis="x", color="0.9")
    ax.axvline(round.ended - round.began, color="0.15", linewidth=1.2)
    ax.set_xlim(0, 1.02 * (round.ended - round.began))
    ax.set_xlabel("seconds of virtual time since the round began")
    closed = "its deadline" if round.critical < 0 else f"client {round.critical}, in bold"
    ax.set_title(f"{title}, round {number}: closed by {closed}", fontsize=11, loc="left")
    every = [bar for found in bars.values() for bar in found]
    words = {bar.word for bar in every}
    drawn = [(word, looks["color"], looks["hatch"]) for word, looks in LOOKS.items() if word in words]
    handles = [Patch(label=word, edgecolor="white", facecolor=colour, hatch=hatch) for word, colour, hatch in drawn]
    if not all(bar.whole for bar in every):
        handles.append(Patch(label="pale: aborted", facecolor="0.8", edgecolor="white"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9)
    return figure


def bars_of(timeline: Timeline, numbers: Sequence[int]) -> list[dict[str, list[Bar]]]:
    """The bars of each of these rounds, ascending, by the name of their client or cell."""
    windows = [window_of(timeline, (number, number)) for number in numbers]
    begins = [each.began for each in windows]
    found: list[defaultdict[str, list[Bar]]] = [defaultdict(list) for _ in numbers]

    def draw(name: str, word: str, span: tuple[float, float], *, whole: bool = True, round: int = 0) -> None:
        started, ended = span
        for place in range(max(0, bisect_right(begins, started) - 1), bisect_right(begins, ended)):
            if windows[place].holds(started, ended):
                shown = _PREFETCH if round > numbers[place] and word == "prefetch" else word
                found[place][name].append(Bar("download" if shown == "prefetch" else shown, started, ended, whole))

    words = {"down": "download", "up": "upload", "relay": "cell and server"}
    for each in timeline.transfers:
        name = f"client {each.client}" if each.client >= 0 else next(node for node in each.path if node != "server")
        word, span = words.get(each.item, "prefetch"), (each.started, each.ended)
        draw(name, word, span, whole=each.whole, round=each.round)
    for job in timeline.computations:
        draw(f"client {job.client}", "compute", (job.started, job.ended), whole=job.whole)
    for gap in timeline.frameworks:
        draw(f"client {gap.client}", "framework", (gap.started, gap.ended))
    return [dict(each) for each in found]


_MOST_BARS = 9000
"""Bars on a page; of longer runs it has evenly spaced rounds."""


def gantt_data(timelines: Mapping[str, Timeline]) -> list[dict[str, Any]]:
    """For the page: by the name of a method the bars of its rounds, their times in ten thousandths of the round."""
    kinds = list(LOOKS)
    methods = []
    for name, timeline in timelines.items():
        many = len(timeline.transfers) + len(timeline.computations) + len(timeline.frameworks)
        shown = min(
            len(timeline.rounds), max(1, int(_MOST_BARS / len(timelines) * len(timeline.rounds) / max(1, many)))
        )
        picked = np.unique(np.linspace(0, max(0, len(timeline.rounds) - 1), shown).round().astype(int))
        chosen = [timeline.rounds[place] for place in picked.tolist()]
        rounds = []
        for round, bars in zip(chosen, bars_of(timeline, [each.number for each in chosen]), strict=True):
            scale = 10_000 / max(round.ended - round.began, 1e-12)
            rounds.append({
                "round": round.number, "seconds": round.ended - round.began, "closed": round.critical,
                "rows": {row: [[kinds.index(each.word), int(scale * (max(each.started, round.began) - round.began)),
                                int(scale * (min(each.ended, round.ended) - round.began)), int(each.whole)]
                               for each in own] for row, own in bars.items()},
            })  # fmt: skip
        devices = {f"client {client}": device for client, (_, device) in timeline.groups.items()}
        methods.append({"name": name, "of": len(timeline.rounds), "rounds": rounds, "devices": devices})
    return [each for each in methods if each["rounds"]]
