"""The winner on other devices and links: grids of devices by bandwidth, and ranges of seconds and joules."""

from collections.abc import Sequence
from typing import Any

from edgefl.record.sensitivity import DEVICES, OWN, Condition
from edgefl.report.quantities import limit, quantity
from edgefl.report.rows import run_names
from edgefl.report.run_result import RunResult
from edgefl.report.sensitivity import DEVICE_WORDS, Question, Sensitivity, Spent, figure_of, kept_decisions, robustness


def robustness_data(runs: Sequence[RunResult], timings: Sequence[Sensitivity | None]) -> list[dict[str, Any]]:
    """For each run that was timed under other conditions a sentence and a grid for each target and budget."""
    return [
        {"name": name, **_found(found)}
        for name, run, found in zip(run_names(runs), runs, timings, strict=True)
        if found is not None and run.trained
    ]


def _found(found: Sensitivity) -> dict[str, Any]:
    grids = [_grid(found, question) for question in found.questions()]
    return {"sentences": robustness(found), "grids": grids, "notes": _notes(found)}


def _grid(found: Sensitivity, question: Question) -> dict[str, Any]:
    bandwidths = sorted({condition.bandwidth for condition in found.conditions})
    own = found.answer(question, OWN).leaders

    def answer(condition: Condition) -> tuple[str, str, str]:
        """Its class in HTML, the names of the winners, and their figure."""
        answer = found.answer(question, condition)
        stays = condition == OWN or (bool(own) and own[0] in answer.leaders)
        kind = "own" if condition == OWN else "" if stays else "changed"
        names = f"{'' if stays else '≠ '}{' = '.join(answer.leaders) or 'none'}"
        return kind, names, figure_of(answer, question)

    return {
        "caption": f"{question.words}: devices by bandwidth",
        "bandwidths": [limit(each, "fraction") for each in bandwidths],
        "rows": {DEVICE_WORDS[each]: [answer(Condition(each, rate)) for rate in bandwidths] for each in DEVICES},
    }


def _notes(found: Sensitivity) -> list[str]:
    lines = [
        "Fast devices have every figure of their profiles at the bound with the least seconds and joules, slow devices "
        "at the bound with the most. Bandwidth: of every link, relative to the scenario. Framed: the run's own "
        "conditions. ≠: the run's winner does not win there. =: not decided. "
        "Cohorts, models and accuracies are the run's; times, bytes and joules are those of "
        "its rounds under each condition."
    ]
    if any(found.answer(question, each).least for question in found.questions() for each in found.conditions):
        lines.append(
            "≥ or ≤: the run's budget ended a method's training earlier than under this condition, so its metric "
            "may be better; with stop: rounds nothing is cut off."
        )
    return [*lines, *kept_decisions(found)]


def bands(runs: Sequence[RunResult], timings: Sequence[Sensitivity | None]) -> list[list[str]]:
    """The ranges of each method's seconds and joules over conditions; the first row is the heading.

    The conditions are the bounds of profile figures, the bandwidths and, with ``queue: fifo``, the draws of the shares.
    """
    drawn = any(found is not None and found.draws for found in timings)
    over = ["by devices", "by bandwidth", *(["by draws of shares"] if drawn else [])]
    rows = [["method", "time", *over, "energy", *over]]
    for name, found in zip(run_names(runs), timings, strict=True):
        if found is None:
            continue
        for label in found.labels:
            shown = f"{name}: {label}" if len(runs) > 1 else label
            rows.append(
                [shown, *(words for kind in ("seconds", "joules") for words in _bands(found, label, kind, drawn))]
            )
    return rows if len(rows) > 1 else []


def _bands(found: Sensitivity, label: str, kind: Spent, drawn: bool) -> list[str]:
    own = found.total(label, OWN, kind).mean
    devices = [found.total(label, each, kind).mean for each in found.conditions if each.bandwidth == 1.0]
    links = [found.total(label, each, kind).mean for each in found.conditions if each.devices == "nominal"]
    groups = [devices, links]
    if drawn:
        groups.append([found.total(label, each, kind).mean for each in found.draws])
    return [
        quantity(own, kind),
        *(f"{quantity(min(all), kind)} – {quantity(max(all), kind)}" if all else "" for all in groups),
    ]
