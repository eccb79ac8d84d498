"""The page's sections as data; ``sections.html.jinja`` has a macro for each, and the script adds the drawings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from edgefl.report.comparison import details, side_by_side
from edgefl.report.glance import glance
from edgefl.report.page.devices import devices_data, fairness_data, fleet_data
from edgefl.report.page.figures import front_over, stretches
from edgefl.report.page.robustness import Timed, bands, robustness_data
from edgefl.report.page.series import COSTS, Series
from edgefl.report.quantities import quantity
from edgefl.report.rows import run_names
from edgefl.report.run_result import RunResult
from edgefl.report.timeline.usage import bottleneck_counts, bottlenecks_of, traffic_of

_WORDS = {"seconds": "time", "bytes": "traffic", "joules": "energy"}


class Section(NamedTuple):
    """A part of the page: the name of its macro and anchor, its heading, and the macro's arguments."""

    name: str
    title: str
    data: dict[str, Any]


def sections(runs: Sequence[RunResult], series: Sequence[Series], timings: Sequence[Timed]) -> list[Section]:
    """All sections for which these runs have data, in order; ``timings``: each run under other conditions."""
    trained = any(run.trained for run in runs)
    choosing = {
        number: one.name for number, one in enumerate(series) if any(timeline.alphas for timeline in one.timelines)
    }
    metric = runs[0].metric.word
    title = f"{metric[:1].upper()}{metric[1:]}"
    words = {kind: _WORDS[kind] for kind in COSTS}
    found = [
        ("outcome", "Outcome", _outcome(runs, timings)),
        trained and ("metric", title, {"word": metric}),
        ("budget", "Who wins at your budget?", {"trained": trained, "costs": words, "word": metric}),
        trained and ("front", f"{title} against cost", {"lines": _front(series), "word": metric}),
        trained and ("robustness", "The winner on other devices and links", {"runs": robustness_data(runs, timings)}),
        ("traffic", "Traffic", {"rows": _traffic(series)}),
        ("time", "Time of a round", {"rows": _time(series)}),
        ("devices", "Devices", devices_data(series)),
        trained and ("fairness", "The worst tenth of clients", {"rows": fairness_data(series), "title": title}),
        bool(choosing) and ("blocks", "Blocks sent", {"methods": choosing}),
        ("fleet", "Fleet and network", {"runs": fleet_data(runs)}),
        ("scenario", "Scenario", {"runs": _scenarios(runs)}),
        ("reading", "How to read this page", {}),
    ]
    return [Section(*section) for section in found if section]


def _outcome(runs: Sequence[RunResult], timings: Sequence[Timed]) -> dict[str, Any]:
    shown = glance(runs[0]) if len(runs) == 1 else side_by_side(*runs)
    return {"shown": shown, "every": details(*runs), "bands": bands(runs, timings)}


def _front(series: Sequence[Series]) -> list[tuple[str, str]]:
    """A sentence about the Pareto front over each kind of cost."""
    return [(_WORDS[kind], _front_line(series, kind)) for kind in COSTS]


def _front_line(series: Sequence[Series], kind: str) -> str:
    points = front_over(series, kind)
    if not points:
        return "nothing was evaluated."
    counts = Counter(point.series for point in points)
    dimension = series[0].run.metric.dimension
    shares = ", ".join(f"{series[owner].name} {count}" for owner, count in counts.most_common())
    first, last = stretches(points)[-1]
    start = f"{series[last.series].name} is at the upper end of the front"
    sentence = f"{start}, {quantity(last.value, dimension)} for {quantity(last.cost, kind)}"
    if first != last:
        sentence = (
            f"{start}, from {quantity(first.cost, kind)} ({quantity(first.value, dimension)}) "
            f"to {quantity(last.cost, kind)} ({quantity(last.value, dimension)})"
        )
    return f"{sentence}. Models on the front: {shares}."


def _traffic(series: Sequence[Series]) -> list[list[str]]:
    """Rows of bytes by method and direction, the mean over seeds."""
    rows = []
    for one in series:
        found = [traffic_of(timeline) for timeline in one.timelines]
        for side in ("down", "up") if found else ():
            fates: Counter[str] = Counter()
            for each in found:
                fates.update(getattr(each, side))
            mean = {fate: bytes / len(found) for fate, bytes in fates.items()}
            wasted = [f"{quantity(mean[fate], 'bytes')} {_fate(fate)}" for fate in mean if fate != "useful"]
            wasted = [words for words in wasted if not words.startswith("0 ")]
            total, useful = quantity(sum(mean.values()), "bytes"), quantity(mean.get("useful", 0.0), "bytes")
            rows.append([one.name, side, total, useful, ", ".join(wasted) or "none"])
    return rows


def _fate(fate: str) -> str:
    return {"prefetched_in_vain": "prefetched but not used", "broken": "of broken attempts"}.get(fate, fate)


def _time(series: Sequence[Series]) -> list[list[str]]:
    """Rows of what limited the rounds."""
    rows = []
    for one in series:
        rounds = sum(len(timeline.rounds) for timeline in one.timelines)
        found = [each for timeline in one.timelines for each in bottlenecks_of(timeline)]
        for each, count in bottleneck_counts(found)[:4]:
            share = f"{100 * count / rounds:.0f} %"
            rows.append([one.name, each.name, each.phase, share, quantity(each.seconds / count, "seconds")])
    return rows


def _scenarios(runs: Sequence[RunResult]) -> list[tuple[str, str]]:
    return [
        (name, run.paths.scenario.read_text(encoding="utf-8")) for name, run in zip(run_names(runs), runs, strict=True)
    ]
