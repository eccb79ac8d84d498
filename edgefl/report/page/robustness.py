"""Whether the winner stays the winner: grids of devices by bandwidth, and the bands of seconds and joules."""

from __future__ import annotations

from collections.abc import Sequence

from edgefl.errors import UserError
from edgefl.record.sensitivity import DEVICES, OWN, Condition
from edgefl.report.page.markup import note, paragraph, prose, table, text
from edgefl.report.quantities import quantity
from edgefl.report.rows import run_names
from edgefl.report.run_result import RunResult
from edgefl.report.sensitivity import (
    DEVICE_WORDS,
    Question,
    Sensitivity,
    Spent,
    figure_of,
    read_sensitivity,
    robustness,
)

Timed = Sensitivity | UserError | None
"""A run under other conditions, or what is wrong with the file of it; ``None`` where there is none."""


def timed(run: RunResult) -> Timed:
    """What lies in a run's directory; a damaged file takes no more from the page than its own part."""
    try:
        return read_sensitivity(run)
    except UserError as error:
        return error


def robustness_section(runs: Sequence[RunResult], elsewhere: Sequence[Timed]) -> str:
    """For each run a sentence and a grid for each target and budget; or how to get them."""
    parts = []
    for name, run, found in zip(run_names(runs), runs, elsewhere, strict=True):
        title = f"<h3>{text(name)}</h3>" if len(runs) > 1 else ""
        parts.append(title + (_found(found) if isinstance(found, Sensitivity) else _missing(run, found)))
    return "".join(parts)


def _missing(run: RunResult, error: UserError | None) -> str:
    if error is not None:
        return paragraph(f"Left out: {error}")
    if not run.trained:
        return paragraph("Nothing was trained, so there is no winner.")
    return paragraph(
        f"Not worked out for this run. edgefl replay {run.path} --sensitivity times its rounds again on slower and "
        "faster devices and links, without training, and the next page shows who wins there; unless a deadline or "
        "asynchronous aggregation lets arrivals decide what is trained."
    )


def _found(found: Sensitivity) -> str:
    sentences = "".join(f"<li>{prose(line)}</li>" for line in robustness(found))
    grids = "".join(_grid(found, question) for question in found.questions())
    return f'<ul>{sentences}</ul><div class="grids">{grids}</div>' + "".join(note(line) for line in _notes(found))


def _grid(found: Sensitivity, question: Question) -> str:
    bandwidths = sorted({condition.bandwidth for condition in found.conditions})
    own = found.answer(question, OWN).leaders
    head = "".join(f'<th scope="col">{f"{each:.0%}".replace("%", " %")}</th>' for each in bandwidths)
    body = ""
    for devices in DEVICES:
        body += f'<tr><th scope="row">{DEVICE_WORDS[devices]}</th>'
        for bandwidth in bandwidths:
            condition = Condition(devices, bandwidth)
            answer = found.answer(question, condition)
            stays = condition == OWN or (bool(own) and own[0] in answer.leaders)
            kind = "own" if condition == OWN else "" if stays else "changed"
            names = f"{'' if stays else '≠ '}{' = '.join(answer.leaders) or 'nobody'}"
            body += f'<td class="{kind}">{prose(names)} <small>{prose(figure_of(answer, question))}</small></td>'
        body += "</tr>"
    caption = f"{question.words}: devices by bandwidth"
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{text(caption)}"><table class="grid">'
        f'<caption><span>{prose(caption)}</span></caption><thead><tr><th scope="col">devices</th>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _notes(found: Sensitivity) -> list[str]:
    lines = [
        "Devices: fast and slow ones have every figure of their profiles at the bound that gives the least, or the "
        "most, seconds and joules. Bandwidth: of every link, by the scenario's. Framed: the run's own conditions. ≠: "
        "its winner does not win there. Joined by =: tied, for their 95 % intervals overlap. Cohorts, models and "
        "accuracies are the run's; times, bytes and joules are those of its rounds under each condition."
    ]
    if any(found.answer(question, each).least for question in found.questions() for each in found.conditions):
        lines.append(
            "≥: the run's own budget ended some method's training before this one would have here, so its accuracy may "
            "be higher; with stop: rounds nothing is cut off."
        )
    for label, decisions in found.held.items():
        lines.append(
            f"{label} decides on {' and '.join(decisions)} by time. Its decisions are held as the run took them: under "
            "other conditions it might decide otherwise, and only a run of its own can tell."
        )
    lines += [f"{label} is left out: {reason}" for label, reason in found.refused.items()]
    return lines


def bands(runs: Sequence[RunResult], elsewhere: Sequence[Timed]) -> str:
    """Seconds and joules of each method between the bounds of the profiles' figures, and over the bandwidths."""
    rows = []
    for name, found in zip(run_names(runs), elsewhere, strict=True):
        if not isinstance(found, Sensitivity):
            continue
        for label in found.labels:
            shown = f"{name}: {label}" if len(runs) > 1 else label
            rows.append([shown, *(words for kind in ("seconds", "joules") for words in _bands(found, label, kind))])
    if not rows:
        return ""
    headers = ["method", "time", "by devices", "by bandwidth", "energy", "by devices", "by bandwidth"]
    return table(
        "How sure the figures are: over the bounds of the profiles' figures, and ±30 % bandwidth", headers, rows
    )


def _bands(found: Sensitivity, label: str, kind: Spent) -> list[str]:
    own = found.total(label, OWN, kind).mean
    devices = [found.total(label, each, kind).mean for each in found.conditions if each.bandwidth == 1.0]
    links = [found.total(label, each, kind).mean for each in found.conditions if each.devices == "nominal"]
    return [
        quantity(own, kind),
        *(f"{quantity(min(all), kind)} – {quantity(max(all), kind)}" for all in (devices, links)),
    ]
