"""The page's sections as data; ``sections.html.jinja`` has a macro for each."""

from collections import Counter
from collections.abc import Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from edgefl.record.figures import COSTS, PRICED, at
from edgefl.report.comparison import details, marked, side_by_side
from edgefl.report.glance import glance, headline, next_steps, verdict
from edgefl.report.html import render
from edgefl.report.page.devices import blocks_data, devices_data, fairness_data, fleet_data, fleet_words
from edgefl.report.page.fleet_pictures import battery_data, map_data
from edgefl.report.page.series import Series, compared_series, front_over, series_of, slider_data
from edgefl.report.pictures import drawings
from edgefl.report.quantities import quantity
from edgefl.report.rows import comparison_rows, named, none_completed_a_round
from edgefl.report.run_result import RunResult
from edgefl.report.sensitivity import robustness_data
from edgefl.report.stragglers import stragglers_table
from edgefl.report.table import Table, by_label
from edgefl.report.timeline.gantt import LOOKS, gantt_data
from edgefl.report.timeline.usage import bottlenecks_of, breakdown_of, traffic_of
from edgefl.wording import counted, listed


class Section(NamedTuple):
    """A part of the page."""

    name: str  # of its macro and anchor
    title: str  # its heading
    data: dict[str, Any]  # the macro's arguments
    folded: bool = False  # whether a reader opens it


class Fact(NamedTuple):
    """A fact of the first screen."""

    head: str
    figure: str
    words: str


def subtitle(runs: Sequence[RunResult]) -> list[str]:
    """What was run."""
    if len(runs) == 1:
        name = runs[0].option("model.name")
        what = headline(runs[0]).removeprefix(f"{runs[0].name} · ") + (f" · model {name}" if name else "")
        return [what, fleet_words(runs[0])]
    labels = dict.fromkeys(label for run in runs for label in run.labels)
    seeds = {seed for run in runs for seed in run.seeds}
    return [" · ".join([counted(len(runs), "run"), counted(len(labels), "method"), counted(len(seeds), "seed")])]


def facts(runs: Sequence[RunResult]) -> list[Fact]:
    """Of one run who is best and how sure that is, the metric with its lead, and the cost; else who is best in each."""
    found = []
    for name, run in named(runs).items():
        empty = none_completed_a_round(comparison_rows(run))
        for line in verdict(run).split("\n")[: 1 if run.trained or empty else None]:
            head, *words = line.split("  ")
            head = head.rstrip(":") if words else ""
            found.append(Fact(name if len(runs) > 1 else head, words[0] if words else line, "  ".join(words[1:])))
    if len(runs) > 1 or not runs[0].trained:
        return found
    best, table = found[0], glance(runs[0])
    cells = {column.head: column.cells for column in table.columns}
    word, lead = runs[0].metric.word, ""
    if "behind" in cells:
        lead = f"{cells['behind'][1]} {'points ' * runs[0].metric.share}ahead of {cells['method'][1]}"
    costs = ", ".join(cells[head][0] for head in COSTS.values())
    reached = [f"{head} {cells[head][0]}" for head in cells if head.endswith(" at")]
    cost = Fact(f"cost of {cells['method'][0]}", costs, ", ".join(reached).replace("at never", "never"))
    sure = best.words.partition("  ")[2].strip("()").replace(")  (", "; ")
    return [best._replace(words=sure), Fact(word, cells[word][0], lead), cost]


def sections(runs: Sequence[RunResult], series: Sequence[Series]) -> list[Section]:
    """All sections for which these runs have data, in order."""
    trained = any(run.trained for run in runs)
    metric = runs[0].metric.word
    title = f"{metric[:1].upper()}{metric[1:]}"
    results = [result for one in series for result in one.results]
    scenarios = [(name, run.paths.scenario.read_text("utf-8")) for name, run in named(runs).items()]
    priced = [each for each in PRICED.values() if each.limit and all(at(e, each.name) is not None for e in results)]
    kinds = COSTS | {each.name: each.head for each in priced}
    compared = compared_series(series)
    front = [(head, _front(compared, kind), kind * (kind in COSTS)) for kind, head in kinds.items()] if trained else []
    logged = any(one.timelines for one in series)
    robust = robustness_data(runs)
    found = [
        Section("outcome", f"{title} and cost" if trained else "Costs", _outcome(runs, trained=trained)),
        logged and Section("rounds", "What limited the rounds", _rounds(series)),
        (bars := _gantt(series)) and Section("gantt", "One round", bars),
        (late := stragglers_table(series)) and Section("stragglers", "Whom the rounds waited for", {"shown": late}),
        logged and Section("devices", "Devices", devices_data(series)),
        Section("budget", "Who wins at your budget?", {"trained": trained, "costs": COSTS, "word": metric}),
        robust and Section("robustness", "The winner on other devices and links", {"runs": robust}),
        Section("statistics", "All figures, intervals and differences",
                {"every": details(*runs)}, True),
        trained and Section("front", f"{title} against cost", {"lines": front}),
        (nodes := map_data(series)) and Section("map", "Map of the fleet", {"methods": nodes}),
        (held := battery_data(series)) and Section("batteries", "Batteries over time", {"methods": held}),
        logged and Section("traffic", "Traffic: useful and wasted bytes", {"rows": _traffic(series)}, True),
        (rows := fairness_data(series))
        and Section("fairness", "The worst tenth of clients", {"rows": rows, "title": title}, True),
        (blocks := blocks_data(series)) and Section("blocks", "Blocks chosen for each client", blocks, True),
        (fleet := fleet_data(runs)) and Section("fleet", "Fleet and network", {"runs": fleet}, True),
        Section("scenario", "Scenario with all defaults", {"runs": scenarios}, True),
        Section("reading", "How to read this page", {}, True),
    ]  # fmt: skip
    return [section for section in found if isinstance(section, Section)]


def _outcome(runs: Sequence[RunResult], *, trained: bool) -> dict[str, Any]:
    """The picture, the few columns of the table, and the commands that lead on."""
    pictures = drawings(runs) if trained else {}
    if len(runs) > 1:
        return {"shown": side_by_side(*runs), "pictures": pictures, "steps": []}
    run, table = runs[0], glance(runs[0])
    columns, ends = table.columns[:-1], table.columns[-1:]
    notes = [*(f"{each.head}: {by_label(columns[0].cells, each.cells)}." for each in ends), *table.notes]
    steps = [line[:9].split() + line[9:].split("   ") for line in next_steps(run, run.path)[1:]]
    return {"shown": Table(marked(run, columns), notes), "pictures": pictures, "steps": steps}


def _rounds(series: Sequence[Series]) -> dict[str, Any]:
    """What limited the rounds: a sentence, the share of rounds of each cause and method, and the seconds of a round."""
    logged = [one for one in series if one.timelines]
    counts: list[Counter[tuple[str, str]]] = []
    phases = []
    for one in logged:
        causes = [each for timeline in one.timelines for each in bottlenecks_of(timeline) if each.seconds]
        counts.append(Counter((_PHASES[each.phase], each.name) for each in causes))
        rounds = [each for timeline in one.timelines for each in breakdown_of(timeline)]
        if any(map(any, rounds)):
            mean = {name: sum(getattr(each, name) for each in rounds) / len(rounds) for name in (*_PHASES, "hidden")}
            phases.append((one.name, mean.pop("hidden"), mean))
    every: Counter[tuple[str, str]] = sum(counts, Counter())
    total = every.total()
    top = [f"{100 * count / total:.0f} % wait for {phase}{name}" for (phase, name), count in every.most_common(2)]
    rows = [
        [f"{phase}{name}", *(f"{100 * each[phase, name] / max(1, each.total()):.0f} %" for each in counts)]
        for (phase, name), _ in every.most_common(6)
    ]
    shown = [name for name in _PHASES if any(seconds[name] > 1e-9 for *_, seconds in phases)]
    longest = max((sum(seconds.values()) for *_, seconds in phases), default=1.0)
    return {
        "sentence": f"Of all rounds, {listed(top)}." if top else "",
        "methods": [one.name for one in logged],
        "rows": rows,
        "phases": shown,
        "bars": [(name, quantity(hidden, "seconds") if hidden > 1e-9 else "",
                  [(each, quantity(seconds[each], "seconds"), 100 * seconds[each] / longest) for each in shown])
                 for name, hidden, seconds in phases],
    }  # fmt: skip


def _gantt(series: Sequence[Series]) -> dict[str, Any]:
    """The rounds of each method's first seed."""
    logged = {one.name: one.timelines[0] for one in series if one.timelines}
    methods = gantt_data(logged)
    some = any(len(each["rounds"]) < each["of"] for each in methods)
    words = f"Of the first seed{', evenly spaced rounds' * some}. Another picture: edgefl timeline RUN --method NAME."
    return {"gantt": methods, "kinds": list(LOOKS), "words": words} if methods else {}


_PHASES = {"download": "download over ", "compute": "computing on ", "upload": "upload over "}
_PHASES |= {"framework": "", "server": "", "evaluation": "", "waiting": ""}
"""The phases of a round, in words that the cause follows."""


def _front(series: Sequence[Series], kind: str) -> str:
    points = front_over(series, kind)
    if not points:
        return "nothing was evaluated."
    counts = Counter(point.series for point in points)
    dimension = series[0].run.metric.dimension
    shares = ", ".join(f"{series[owner].name} {count}" for owner, count in counts.most_common())
    tail = [*takewhile(lambda point: point.series == points[-1].series, reversed(points))]
    first, last = tail[-1], tail[0]
    start = f"{series[last.series].name} is at the upper end of the front"
    (least, low), (most, high) = ((quantity(of.cost, kind), quantity(of.value, dimension)) for of in (first, last))
    reach = f"{high} for {most}" if first == last else f"from {least} ({low}) to {most} ({high})"
    return f"{start}, {reach}. Models on the front: {shares}."


_FATES = {"prefetched_in_vain": "prefetched but not used", "broken": "of broken attempts"}


def _traffic(series: Sequence[Series]) -> list[list[str]]:
    rows = []
    for one in series:
        found = [traffic_of(timeline) for timeline in one.timelines]
        for side in ("down", "up") if found else ():
            fates: Counter[str] = Counter()
            for each in found:
                fates.update(getattr(each, side))
            mean = {fate: bytes / len(found) for fate, bytes in fates.items()}
            wasted = [f"{quantity(mean[fate], 'bytes')} {_FATES.get(fate, fate)}" for fate in mean if fate != "useful"]
            wasted = [words for words in wasted if not words.startswith("0 ")]
            total, useful = quantity(sum(mean.values()), "bytes"), quantity(mean.get("useful", 0.0), "bytes")
            rows.append([one.name, side, total, useful, ", ".join(wasted) or "none"])
    return rows


def page(runs: Sequence[RunResult]) -> str:
    """The page as text."""
    series = series_of(runs)
    return render(
        "page.html.jinja",
        title=" | ".join(named(runs)),
        subtitle=subtitle(runs),
        facts=facts(runs),
        version=", ".join(sorted({str(run.summary["edgefl"]) for run in runs})),
        contents=sections(runs, series),
        data=slider_data(runs, compared_series(series)),
    )
