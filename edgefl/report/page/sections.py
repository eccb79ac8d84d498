"""The page's sections in words and tables; the drawings are filled in by its script."""

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

_NO_LOG = "The run directory holds no event log, so this cannot be said."
_WORDS = {"seconds": "time", "bytes": "traffic", "joules": "energy"}


class Section(NamedTuple):
    """A part of the page: where its heading can be linked to, the heading, and what it holds."""

    name: str
    title: str
    html: str


def sections(runs: Sequence[RunResult], series: Sequence[Series], elsewhere: Sequence[Timed]) -> list[Section]:
    """All sections that these runs can fill, in the page's order; ``elsewhere``: each under other conditions."""
    trained = any(run.trained for run in runs)
    found = [Section("outcome", "Outcome", _outcome(runs, elsewhere))]
    if trained:
        found.append(Section("accuracy", "Accuracy", _accuracy()))
    found.append(Section("budget", "Who wins at your budget?", _budget(trained)))
    if trained:
        found.append(Section("front", "Accuracy against cost", _front(series)))
    if trained:
        found.append(Section("robustness", "Does the winner stay the winner?", robustness_section(runs, elsewhere)))
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


def _outcome(runs: Sequence[RunResult], elsewhere: Sequence[Timed]) -> str:
    rows = comparison_rows(*runs)
    sentences = ""
    for run, lines in verdicts(runs):
        items = "".join(f"<li>{prose(line)}</li>" for line in lines)
        sentences += (f"<h3>{text(run)}</h3>" if run else "") + f'<ul class="verdict">{items}</ul>'
    found = columns(rows)
    compared = table(
        "Every method, side by side",
        [column.header for column in found],
        [[column.cell(row).line for column in found] for row in rows],
        words=next((number for number, column in enumerate(found) if not column.text), 1),
    )
    below = "".join(note(line) for line in notes(rows)) + bands(runs, elsewhere)
    return f"{sentences}{compared}{below}"


def _accuracy() -> str:
    axes = [("seconds", "time"), ("bytes", "bytes"), ("flops", "FLOPs"), ("joules", "joules"), ("rounds", "rounds")]
    described = "Accuracy of each method over what it had spent; the outcome's table has the figures"
    return (
        switch("over", "over", axes)
        + figure("accuracy-drawing", described)
        + note(
            "Lines are means over seeds, drawn as far as every seed went; bands reach from the lowest seed to the "
            "highest. Dashed lines across are targets, dotted lines upright are budgets."
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
            "All three limits hold together; a slider at its right end sets none. What counts is the last model "
            "evaluated within them. Bytes are both directions together. Tied: the 95 % intervals overlap."
            if trained
            else "All three limits hold together; a slider at its right end sets none. Nothing was trained, so the "
            "rounds that end within them are counted. Tied: the 95 % intervals overlap."
        )
    )


def _front(series: Sequence[Series]) -> str:
    lines = "".join(f"<li><b>{_WORDS[kind]}</b>: {prose(_front_line(series, kind))}</li>" for kind in COSTS)
    return (
        switch("cost", "against", [("seconds", "time"), ("bytes", "bytes"), ("joules", "joules")])
        + figure("front-drawing", "Every evaluated model by its cost and accuracy, and the front that none beats")
        + note(
            "A point is a method's model after a round, the mean over seeds. Large points lie on the front: no other "
            "model is as accurate for less."
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
    whose = series[last.series].name
    top = f"{quantity(last.accuracy, 'fraction')} for {quantity(last.cost, kind)}"
    held = f"{whose} holds the upper end, {top}"
    if first != last:
        held = (
            f"{whose} holds the upper end, from {quantity(first.cost, kind)} ({quantity(first.accuracy, 'fraction')}) "
        )
        held += f"to {quantity(last.cost, kind)} ({quantity(last.accuracy, 'fraction')})"
    return f"{held}. Models on the front: {shares}."


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
        figure("traffic-drawing", "Bytes down and up by what became of them; the table below has the figures")
        + table("Mean over seeds", ["method", "direction", "delivered", "useful", "wasted"], rows, words=2)
        + note(
            "Useful bytes belong to updates that were aggregated. Late: a round closed without them. Dropped: the "
            "device left. Prefetched in vain: sent early for a part that never came, or that needed something else "
            "by then. Retried: moved before the device had an accident and began anew. Unfinished: under way when the "
            "run ended."
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
        figure("time-drawing", "Seconds of a round's critical path by method; the outcome's table has the totals")
        + note(
            "A round lasts as long as the client that closes it: its download, computation and upload, and what it or "
            "the round waited. Hidden seconds are transfers that passed during the round before."
        )
        + table(
            "What held rounds back: the longest part of the closing client's way, up to four for each method",
            ["method", "device or link", "while", "of rounds", "each time"],
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
        + note("Rounds in which everybody is sent the whole model by rule have no choice and no bar.")
    )


def _scenario(runs: Sequence[RunResult]) -> str:
    parts = []
    for name, run in zip(run_names(runs), runs, strict=True):
        words = run.paths.scenario.read_text(encoding="utf-8")
        parts.append(
            f"<details><summary>{text(name)}: the scenario as it was resolved, every default written out</summary>"
            f'<pre tabindex="0">{text(words)}</pre></details>'
        )
    return "".join(parts)


def _reading() -> str:
    return paragraph(
        "Time, bytes, joules and FLOPs come from a model of the devices and the network; accuracy comes from real "
        "training. Figures over several seeds are means with the half width of their 95 % interval (Student's t). Two "
        "methods are tied where their intervals overlap; one seed has no interval, and its differences may be chance."
    )
