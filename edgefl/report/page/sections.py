"""The page's sections with texts and tables; its script adds the drawings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from edgefl.report.columns import columns
from edgefl.report.course import brake_of, held_back, traffic_of
from edgefl.report.page.devices import devices_section, fleet_section, worst_tenth_section
from edgefl.report.page.figures import front_over
from edgefl.report.page.markup import choice, figure, note, paragraph, prose, switch, table, text
from edgefl.report.page.pareto import stretches
from edgefl.report.page.robustness import Timed, bands, robustness_section
from edgefl.report.page.series import COSTS, Series
from edgefl.report.quantities import quantity
from edgefl.report.rows import comparison_rows, notes, run_names
from edgefl.report.run_result import RunResult
from edgefl.report.verdict import verdicts

_NO_LOG = "The run directory contains no event log, so this section is empty."
_WORDS = {"seconds": "time", "bytes": "traffic", "joules": "energy"}


class Section(NamedTuple):
    """A part of the page: the anchor of its heading, the heading, and its content."""

    name: str
    title: str
    html: str


def sections(runs: Sequence[RunResult], series: Sequence[Series], timings: Sequence[Timed]) -> list[Section]:
    """All sections for which these runs have data, in order; ``timings``: each run under other conditions."""
    trained = any(run.trained for run in runs)
    found = [Section("outcome", "Outcome", _outcome(runs, timings))]
    if trained:
        found.append(Section("accuracy", "Accuracy", _accuracy()))
    found.append(Section("budget", "Who wins at your budget?", _budget(trained)))
    if trained:
        found.append(Section("front", "Accuracy against cost", _front(series)))
    if trained:
        found.append(Section("robustness", "Does the winner stay the winner?", robustness_section(runs, timings)))
    found += [
        Section("traffic", "Traffic", _traffic(series)),
        Section("time", "Where the time went", _time(series)),
        Section("devices", "Devices", devices_section(series) or paragraph(_NO_LOG)),
    ]
    if trained:
        found.append(Section("fairness", "The worst tenth of clients", worst_tenth_section(series)))
    if any(course.alphas for one in series for course in one.courses):
        found.append(Section("blocks", "Blocks sent", _blocks(series)))
    found += [
        Section("fleet", "Fleet and network", fleet_section(runs)),
        Section("scenario", "Scenario", _scenario(runs)),
    ]
    return [*found, Section("reading", "How to read this page", _reading())]


def _outcome(runs: Sequence[RunResult], timings: Sequence[Timed]) -> str:
    rows = comparison_rows(*runs)
    sentences = ""
    for run, lines in verdicts(runs):
        items = "".join(f"<li>{prose(line)}</li>" for line in lines)
        sentences += (f"<h3>{text(run)}</h3>" if run else "") + f'<ul class="verdict">{items}</ul>'
    found = columns(rows)
    compared = table(
        "All methods",
        [column.header for column in found],
        [[column.cell(row).line for column in found] for row in rows],
        words=next((number for number, column in enumerate(found) if not column.text), 1),
    )
    below = "".join(note(line) for line in notes(rows)) + bands(runs, timings)
    return f"{sentences}{compared}{below}"


def _accuracy() -> str:
    axes = [("seconds", "time"), ("bytes", "bytes"), ("flops", "FLOPs"), ("joules", "joules"), ("rounds", "rounds")]
    described = "Accuracy of each method over the amount spent; the table of the outcome has the figures"
    return (
        switch("over", "over", axes)
        + figure("accuracy-drawing", described)
        + note(
            "Lines are means over seeds, drawn up to the end of the shortest seed; bands extend from the lowest seed "
            "to the highest. Horizontal dashed lines are targets, vertical dotted lines are budgets."
        )
    )


def _budget(trained: bool) -> str:
    sliders = "".join(
        f'<div class="slider"><label for="budget-{kind}">{_WORDS[kind]}</label>'
        f'<input type="range" id="budget-{kind}" min="1" max="201" step="1" value="201">'
        f'<output id="budget-{kind}-value" for="budget-{kind}"></output></div>'
        for kind in COSTS
    )
    heads = "".join(f'<th scope="col" class="number">{each}</th>' for each in _WORDS.values())
    return (
        f'<div class="sliders">{sliders}</div><p id="winner" class="winner" aria-live="polite"></p>'
        '<div class="wide" tabindex="0" role="region" aria-label="Methods at this budget"><table id="standings">'
        '<caption>At this budget, best first</caption><thead><tr><th scope="col">method</th>'
        f'<th scope="col" class="number">{"accuracy" if trained else "rounds"}</th>{heads}</tr></thead>'
        "<tbody></tbody></table></div>"
        + note(
            "All three limits apply together; a slider at its right end sets no limit. The last model evaluated within "
            "the limits counts. Bytes are the sum of both directions. Tied: the 95 % intervals overlap."
            if trained
            else "All three limits apply together; a slider at its right end sets no limit. Nothing was trained, so "
            "the rounds that end within the limits are counted. Tied: the 95 % intervals overlap."
        )
    )


def _front(series: Sequence[Series]) -> str:
    lines = "".join(f"<li><b>{_WORDS[kind]}</b>: {prose(_front_line(series, kind))}</li>" for kind in COSTS)
    return (
        switch("cost", "against", [("seconds", "time"), ("bytes", "bytes"), ("joules", "joules")])
        + figure("front-drawing", "Cost and accuracy of every evaluated model, and the Pareto front")
        + note(
            "A point is a method's model after a round, the mean over seeds. Large points are on the Pareto front: no "
            "other model is as accurate for less."
        )
        + f"<ul>{lines}</ul>"
    )


def _front_line(series: Sequence[Series], kind: str) -> str:
    points = front_over(series, kind)
    if not points:
        return "nothing was evaluated."
    counts = Counter(point.series for point in points)
    shares = ", ".join(f"{series[owner].name} {count}" for owner, count in counts.most_common())
    first, last = stretches(points)[-1]
    start = f"{series[last.series].name} is at the upper end of the front"
    sentence = f"{start}, {quantity(last.accuracy, 'fraction')} for {quantity(last.cost, kind)}"
    if first != last:
        sentence = (
            f"{start}, from {quantity(first.cost, kind)} ({quantity(first.accuracy, 'fraction')}) "
            f"to {quantity(last.cost, kind)} ({quantity(last.accuracy, 'fraction')})"
        )
    return f"{sentence}. Models on the front: {shares}."


def _traffic(series: Sequence[Series]) -> str:
    rows = []
    for one in series:
        found = [traffic_of(course) for course in one.courses]
        for side in ("down", "up") if found else ():
            fates: Counter[str] = Counter()
            for each in found:
                fates.update(getattr(each, side))
            mean = {fate: bytes / len(found) for fate, bytes in fates.items()}
            wasted = [f"{quantity(mean[fate], 'bytes')} {fate.replace('_', ' ')}" for fate in mean if fate != "useful"]
            wasted = [words for words in wasted if not words.startswith("0 ")]
            total, useful = quantity(sum(mean.values()), "bytes"), quantity(mean.get("useful", 0.0), "bytes")
            rows.append([one.name, side, total, useful, ", ".join(wasted) or "none"])
    if not rows:
        return paragraph(_NO_LOG)
    return (
        figure("traffic-drawing", "Useful and wasted bytes, down and up; the table below has the figures")
        + table("Mean over seeds", ["method", "direction", "delivered", "useful", "wasted"], rows, words=2)
        + note(
            "Useful bytes belong to updates that were aggregated. Late: the round closed without them. Dropped: the "
            "device dropped out. Prefetched in vain: sent in advance for a participation that did not take place or "
            "that needed other data. Retried: sent before the device had an accident and started again. Unfinished: "
            "still in progress when the run ended."
        )
    )


def _time(series: Sequence[Series]) -> str:
    rows = []
    for one in series:
        rounds = sum(len(course.rounds) for course in one.courses)
        for brake, count in held_back([brake for course in one.courses for brake in brake_of(course)])[:4]:
            share = f"{100 * count / rounds:.0f} %"
            rows.append([one.name, brake.name, brake.phase, share, quantity(brake.seconds / count, "seconds")])
    if not rows:
        return paragraph(_NO_LOG)
    return (
        figure("time-drawing", "Seconds of a round's critical path by method; the table of the outcome has the totals")
        + note(
            "The time of a round is the download, computation and upload of the client that closes it, and waiting. "
            "Hidden seconds are transfers during the previous round."
        )
        + table(
            "What limited the rounds: the longest phase of the critical path, up to four rows for each method",
            ["method", "device or link", "phase", "rounds", "mean time"],
            rows,
            words=3,
        )
    )


def _blocks(series: Sequence[Series]) -> str:
    choosing = [
        (str(number), one.name) for number, one in enumerate(series) if any(course.alphas for course in one.courses)
    ]
    return (
        choice("blocks-method", "Method", choosing)
        + figure("blocks-drawing", "How many clients were sent how many of the model's last blocks, by round")
        + note("Rounds in which all clients receive the whole model by rule have no bar.")
    )


def _scenario(runs: Sequence[RunResult]) -> str:
    parts = []
    for name, run in zip(run_names(runs), runs, strict=True):
        words = run.paths.scenario.read_text(encoding="utf-8")
        parts.append(
            f"<details><summary>{text(name)}: the resolved scenario with all defaults</summary>"
            f'<pre tabindex="0">{text(words)}</pre></details>'
        )
    return "".join(parts)


def _reading() -> str:
    return paragraph(
        "Time, bytes, joules and FLOPs come from a model of the devices and the network; accuracy comes from real "
        "training. Figures over several seeds are means with the half width of their 95 % interval (Student's t). Two "
        "methods are tied if their intervals overlap. One seed has no interval, so differences may be chance."
    )
