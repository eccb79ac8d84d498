"""``edgefl plan RUN --for CONDITION`` and ``--seeds-for 1pt``: questions about a finished run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from edgefl.cli.printing import print_table, quiet, say, say_json
from edgefl.errors import UserError, one_line
from edgefl.files import user_path
from edgefl.record import RunPaths
from edgefl.record.names import SWEEP
from edgefl.wording import listed

if TYPE_CHECKING:
    from edgefl.report.run_record import RunRecord
    from edgefl.report.seed_plan import SeedPlan
    from edgefl.rerun.condition import Condition
    from edgefl.rerun.inverse import Answer, Answers, MethodAnswer
    from edgefl.rerun.questions import Name

_ASKED: dict[Name, tuple[str, str, str, str]] = {
    "bandwidth": ("least bandwidth", "with at least {} times the bandwidth", "with any bandwidth", "more bandwidth"),
    "devices": ("slowest devices", "on devices up to {} times as slow", "on any devices", "faster devices"),
    "battery": (
        "smallest batteries",
        "with batteries of at least {}",
        "with batteries of any size",
        "larger batteries",
    ),
    "model": ("largest model", "with a model up to {} times as large", "with any size of the model", "a smaller model"),
}
"""Of each question: its name, its answer, and the answers if all factors meet the condition, or none."""

_ONLY: dict[Name, str] = {
    "bandwidth": "with no less bandwidth",
    "devices": "on devices that are no slower",
    "model": "with a model that is no larger",
}
"""The answers if the boundary is at the run itself."""

_SMALLER_IS_HARDER = ("bandwidth", "battery")


def refuse_run(scenario: str) -> None:
    """Refuse a run directory in place of a scenario.

    Raises:
        UserError: it is one.
    """
    path = user_path(scenario)
    if RunPaths(path).summary.is_file():
        raise UserError(
            "is a run directory: add --for 'accuracy=0.9 within 1h' or --seeds-for 1pt, or plan its scenario, "
            f"{RunPaths(path).scenario}",
            file=scenario,
        )


def print_answers(run: str, condition: str, methods: list[str] | None, *, trust: bool, as_json: bool) -> None:
    """Print the answers for a finished run.

    Raises:
        UserError: it is no finished run, or the condition is invalid.
    """
    path = user_path(run)
    if not path.is_dir():
        raise UserError(f"--for needs the folder of a finished run, from edgefl simulate {run} --out RUN", file=run)
    if (path / SWEEP).is_file():
        raise UserError(f"is a sweep: --for needs one of its runs, a folder in {path / 'jobs'}", file=run)
    from edgefl.rerun.inverse import ask

    with quiet(as_json):
        found = ask(path, condition, methods=methods, trust=trust, answered=_progress)
    if as_json:
        say_json(found.as_dict())
    else:
        _print(found)


def _progress(label: str, left: int) -> None:
    if left:
        say(f"{label}: answered; {left} left", err=True)


def _print(found: Answers) -> None:
    for method in found.methods:
        for sentence in _sentences(method, found.condition, several=len(found.seeds) > 1):
            say(sentence)
    rows = [row for method in found.methods for row in _rows(method, found.condition)]
    several = len(found.seeds) > 1
    notes = [
        f"Found by bisection: each of the {len(found.seeds)} seeds meets the condition at the first factor of an "
        "interval, and one does not at the second."
        if several
        else "Found by bisection: the run meets the condition at the first factor of an interval, not at the second.",
        "Nothing was trained: models and their metric are those of the run. A larger model is assumed to reach the "
        "same metric.",
    ]
    if rows:
        heads = ["method", "question", "factor", "interval", "that is", "beyond it"]
        print_table(heads, rows, notes=notes, words=(0, 1, 4, 5))


def _sentences(method: MethodAnswer, condition: Condition, *, several: bool) -> Iterator[str]:
    from edgefl.report.quantities import limit, quantity

    value = limit(condition.value, condition.metric.dimension)
    within = " and ".join(limit(amount, kind) for kind, amount in condition.limits.items())
    goal = f"{'a moving average of ' if condition.smoothed else ''}{value} {condition.metric.word} within {within}"
    met = [in_words(name, each) for name, each in method.answers.items() if each.met is not None]
    if met:
        yield f"{method.label} reaches {goal} {', or '.join(met)}."
    never = [_ASKED[name][3] for name, each in method.answers.items() if each.met is None]
    if never:
        yield f"{method.label} does not reach {goal} by {' or '.join(never)} alone."
    if method.why_not:
        missing = [_ASKED[name][0] for name in _ASKED if name not in method.answers]
        which = "" if len(missing) == len(_ASKED) else f" for the {listed(missing)}"
        yield f"{method.label} needs training{which}: {method.why_not}."
    if method.spent is not None:
        own = [quantity(method.spent[kind], kind) for kind in method.spent]
        yield f"{method.label} itself takes {listed(own)} for it{', the most of any seed' if several else ''}."


def in_words(name: Name, found: Answer) -> str:
    """The answer to a question, as the end of a sentence."""
    _, some, every, _ = _ASKED[name]
    if found.missed is None or found.met is None:
        return every
    if name == "battery":
        return some.format(_joules(found.figures["joules"]))
    factor = _factor(name, found.met)
    if factor == "1":
        return _ONLY[name]
    if name == "devices" and found.met < 1:
        return f"only on devices at least {_factor('bandwidth', 1 / found.met)} times as fast"
    return some.format(factor)


def _rows(method: MethodAnswer, condition: Condition) -> Iterator[list[str]]:
    for name, found in method.answers.items():
        question = _ASKED[name][0]
        if found.met is None:
            yield [method.label, question, "none", _end(found.missed), "–", _beyond(name, found, condition)]
        elif found.missed is None:
            yield [method.label, question, "any", _end(found.met), _absolute(name, found), "–"]
        else:
            factor, there = _factor(name, found.met), _absolute(name, found)
            interval = f"{factor}, {_factor(name, found.missed, met=False)}"
            yield [method.label, question, factor, interval, there, _beyond(name, found, condition)]


def _end(factor: float | None) -> str:
    """The end of the range that was searched.

    >>> _end(0.001), _end(1000.0)
    ('down to 0.001', 'up to 1000')
    """
    return "–" if factor is None else f"{'up' if factor > 1 else 'down'} to {factor:g}"


def _factor(name: Name, factor: float, *, met: bool = True) -> str:
    """A factor with three digits, rounded away from the boundary.

    >>> _factor("bandwidth", 0.28324), _factor("devices", 3.4879)
    ('0.284', '3.48')
    """
    unit = 10.0 ** (math.floor(math.log10(factor)) - 2)
    up = (name in _SMALLER_IS_HARDER) == met
    return f"{(math.ceil(factor / unit - 1e-9) if up else math.floor(factor / unit + 1e-9)) * unit:.3g}"


def _joules(joules: float) -> str:
    """Joules as the unit of a battery, rounded up to three digits."""
    from edgefl.report.quantities import quantity

    return quantity(float(_factor("battery", joules)), "joules")


def _absolute(name: Name, found: Answer) -> str:
    from edgefl.report.quantities import quantity

    figures = found.figures
    match name:
        case "bandwidth":
            down, up = (f"{figures[direction] / 1e6:.3g} Mbit/s {direction}" for direction in ("down", "up"))
            return f"the median client's link: {down}, {up}"
        case "battery":
            return f"{_joules(figures['joules'])} = {figures['joules'] / 3600:.3g} Wh"
        case "model":
            return f"{quantity(figures['bytes'], 'bytes')}, {quantity(figures['flops'], 'flops')} a step"
    if not found.device:
        return "the given seconds of local training"
    return f"{found.device}: {quantity(figures['step_seconds'], 'seconds')} a step"


def _beyond(name: Name, found: Answer, condition: Condition) -> str:
    """What fails beyond the boundary."""
    from edgefl.report.quantities import limit

    if found.why == "memory":
        return f"too little memory: {found.different}"
    if found.why == "training":
        return "a client runs empty" if name == "battery" else f"other training: {found.different}"
    return next(f"more than {limit(amount, kind)}" for kind, amount in condition.limits.items() if kind == found.why)


def print_seeds(run: str, difference: str, power: float | None, methods: list[str] | None, *, as_json: bool) -> None:
    """Print the seeds that each pair of methods needs.

    Raises:
        UserError: it is no finished run with two methods to compare, or the difference or the power is invalid.
    """
    from edgefl.report.run_record import RunRecord
    from edgefl.report.seed_plan import read_difference, seed_plan
    from edgefl.report.statistics import POWER

    wanted = POWER if power is None else power
    if not 0.0 < wanted < 1.0:
        raise UserError(f"expected a probability between 0 and 1, found {one_line(power)}", file="--power")
    record = RunRecord(run)
    found = seed_plan(record, read_difference(difference, record.metric), power=wanted, methods=methods)
    if as_json:
        say_json(found.as_dict())
    else:
        _print_seeds(record, found)


def _print_seeds(run: RunRecord, plan: SeedPlan) -> None:

    several = len({name for pair in plan.pairs for name in (pair.method, pair.other)}) > 2
    unit = "points" if run.metric.share else run.metric.word
    scale = 100.0 if run.metric.share else 1.0
    wanted = f"{scale * plan.difference:.3g}"
    size = f"{wanted} {'point' if wanted == '1' else 'points'}" if run.metric.share else f"{wanted} ({unit})"
    rows = [
        [
            f"{pair.method} – {pair.other}",
            str(pair.seeds),
            f"{scale * pair.mean:.3g}",
            f"{scale * pair.deviation:.3g}",
            _count(pair.needed),
            _count(pair.cautious),
            *([_count(pair.among_all)] if several else []),
        ]
        for pair in plan.pairs
    ]
    heads = ["difference of", "seeds", f"mean, {unit}", f"deviation, {unit}", "seeds needed", "cautious"]
    notes = [
        f"Seeds needed: with them, Student's t test by seed decides a true difference of {size} "
        f"at 95 % with a probability (power) of {100 * plan.power:.3g} %, if the deviation is the true one.",
        "Cautious: with the upper 80 % confidence bound of the deviation, which few seeds do not show well.",
    ]
    if several:
        heads.append("among all")
        notes.append("Among all: if a method is compared with all others, and the comparisons share the level of 5 %.")
    if rows:
        print_table(heads, rows, notes=notes)
    for sentence in _seed_sentences(run, plan):
        say(sentence)


def _seed_sentences(run: RunRecord, plan: SeedPlan) -> Iterator[str]:
    from edgefl.report.glance import about

    for one, other in plan.unknown:
        yield f"{one} and {other} have fewer than two seeds in common, so the spread of their differences is unknown."
    if not plan.pairs:
        return
    if plan.more is None:
        yield "Not all pairs can be decided with a reasonable number of seeds."
    elif plan.more == 0:
        yield f"All pairs have as many seeds as they need; there are {plan.seeds}."
    else:
        command = f"edgefl simulate {run.path} --add-seeds {plan.more}"
        yield f"To add the seeds that all pairs need{about(run, plan.more)}: {command}"


def _count(seeds: int | None) -> str:
    from edgefl.report.statistics import MOST_SEEDS

    return f"> {MOST_SEEDS}" if seeds is None else str(seeds)
