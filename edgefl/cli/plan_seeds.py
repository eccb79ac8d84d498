"""``edgefl plan RUN --seeds-for 1pt``: how many seeds the comparisons of a finished run need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from edgefl.cli.printing import say, say_json
from edgefl.errors import UserError, one_line

if TYPE_CHECKING:
    from edgefl.report.run_record import RunRecord
    from edgefl.report.seed_plan import SeedPlan


def answer(run: str, difference: str, power: float | None, methods: list[str] | None, *, as_json: bool) -> None:
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
        _print(record, found)


def _print(run: RunRecord, plan: SeedPlan) -> None:
    from edgefl.cli.console import print_table
    from edgefl.report.grid import Cell

    several = len({name for pair in plan.pairs for name in (pair.method, pair.other)}) > 2
    unit = "points" if run.metric.share else run.metric.word
    scale = 100.0 if run.metric.share else 1.0
    wanted = f"{scale * plan.difference:.3g}"
    size = f"{wanted} {'point' if wanted == '1' else 'points'}" if run.metric.share else f"{wanted} ({unit})"
    rows: list[list[str | Cell]] = [
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
    for sentence in _sentences(run, plan):
        say(sentence)


def _sentences(run: RunRecord, plan: SeedPlan) -> Iterator[str]:
    from edgefl.report.seed_plan import about

    for one, other in plan.unknown:
        yield f"{one} and {other} have fewer than two seeds in common, so the spread of their differences is unknown."
    if not plan.pairs:
        return
    if plan.more is None:
        yield "Not all pairs can be decided with a reasonable number of seeds."
    elif plan.more == 0:
        yield f"All pairs have as many seeds as they need; there are {plan.seeds}."
    else:
        cost = "" if plan.seconds_of_a_seed is None else f" (about {about(plan.more * plan.seconds_of_a_seed)})"
        yield f"To add the seeds that all pairs need{cost}: edgefl simulate {run.path} --add-seeds {plan.more}"


def _count(seeds: int | None) -> str:
    from edgefl.report.statistics import MOST_SEEDS

    return f"> {MOST_SEEDS}" if seeds is None else str(seeds)
