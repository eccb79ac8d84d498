"""The end of a run at a glance: the answer, a row for each method, who is first to each target, and what to do next."""

import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median

from edgefl.record.figures import COSTS, PRICED, QUANTITIES, figure
from edgefl.record.summary import SeedResult
from edgefl.record.tables import read_events
from edgefl.report.error_of_seconds import error_interval, measured_sentences
from edgefl.report.notices import notices
from edgefl.report.paired import FEWEST_SEEDS, Comparison, compare_metric, compare_target, compared, figures_by_seed
from edgefl.report.quantities import limit, quantity, unit_for
from edgefl.report.rows import Row, comparison_rows, ended_by, goals, none_completed_a_round, remarks
from edgefl.report.run_result import RunResult
from edgefl.report.statistics import Estimate, TimeToTarget
from edgefl.report.table import MISSING, Column, Table, figures, words
from edgefl.wording import counted, escape, grouped, listed, span


def glance(run: RunResult) -> Table:
    """The end of a run."""
    rows, title = ranked(run), [headline(run), ""]
    if none_completed_a_round(rows):
        return Table([], remarks(rows), [*title, _NOTHING])
    lines = answers(run)
    doubts = measured_sentences(run)[1:]
    notes = [*lines[1:], meaning(run), *error_interval(run), *remarks(rows), *notices(run), *doubts]
    return Table([words("method", [row.label for row in rows]), *columns(run, rows)], notes, [*title, lines[0]])


def verdict(run: RunResult) -> str:
    """The answers of a run, one sentence a line."""
    rows = comparison_rows(run)
    return "\n".join(map(escape, [_NOTHING, *remarks(rows)] if none_completed_a_round(rows) else answers(run)))


_NOTHING = "No method completed a round: there is nothing to compare."


def ranked(run: RunResult) -> list[Row]:
    """The rows of a run, best method first; those without a figure are last."""
    rows = {row.label: row for row in comparison_rows(run)}
    standing = compare_metric(run) if run.trained else _per_round(run)["seconds"]
    return [rows[label] for label in dict.fromkeys([*(standing.means if standing else ()), *rows])]


def columns(run: RunResult, rows: Sequence[Row]) -> list[Column]:
    """What a run's rows show next to the methods' names."""
    if not run.trained:
        means = {kind: standing.means if standing else {} for kind, standing in _per_round(run).items()}
        each = [figures(f"{COSTS[kind]} a round", [of.get(e.label) for e in rows], kind) for kind, of in means.items()]
        rounds = figures("rounds", [row["rounds"] for row in rows], "count", "rounds")
        return [*each, rounds, *costs(rows), ends(rows)]
    standing = compare_metric(run)
    behind = [] if standing is None or len(standing.means) < 2 else [behind_best(run, standing, rows)]
    return [*measures(rows, behind), ends(rows)]


def ends(rows: Sequence[Row]) -> Column:
    """What ended the runs of each row."""
    return words("ended by", [ended_by(row) for row in rows], "stop")


def measures(rows: Sequence[Row], behind: Sequence[Column] | None = None) -> list[Column]:
    """The metric that is compared, the targets and the costs; of several runs no metric if none has one."""
    metric, finals = rows[0].metric, [row.final for row in rows]
    shown = [figures(metric.word, finals, metric.dimension, "metric")] if behind is not None or any(finals) else []
    return [*shown, *(behind or ()), *targets(rows), *costs(rows)]


def costs(rows: Sequence[Row]) -> list[Column]:
    """Time, traffic and energy; CO2 and money of runs with prices."""
    heads = COSTS | {
        each.name: each.head for each in PRICED.values() if each.limit and any(row[each.name] for row in rows)
    }
    return [figures(name, [row[kind] for row in rows], kind, kind) for kind, name in heads.items()]


def behind_best(run: RunResult, standing: Comparison, rows: Sequence[Row]) -> Column:
    """How far each method is behind the best one, in points or in the metric's unit, with the interval that decides."""
    found = {each.label: each.interval for each in standing.differences}
    unit = unit_for([each.mean for each in found.values()], run.metric.dimension)

    def cell(label: str) -> str:
        each = found.get(label)
        if each is None:
            return "baseline" * (label in run.baselines)
        mean, half = round(abs(each.mean), 12), each.half_width
        if half is None:
            return unit.number(mean)
        return f"{unit.number(mean)} ± {unit.interval(half, mean)}" if math.isfinite(half) else MISSING

    return Column("behind", [cell(row.label) for row in rows])


def targets(rows: Sequence[Row], *, spread: bool = False) -> list[Column]:
    """The mean seconds to each target; ``1/3``: one of three seeds reaches it."""
    found = []
    for goal in goals(rows):
        each = [row.targets.get(goal) for row in rows]
        column = figures(f"{_goal(goal, rows[0])} at", [*map(seconds_at, each)], "seconds", spread=spread)
        found.append(column._replace(values=each, key=f"seconds_to_{goal:g}"))
    return found


def seconds_at(target: TimeToTarget | None) -> Estimate | str | None:
    """The mean seconds to a target, or how many seeds reach it."""
    if target is None or target.mean is not None:
        return target and target.mean
    return f"{target.reached}/{target.seeds}" if target.reached else "never"


def _goal(value: float, row: Row) -> str:
    text = limit(value, row.metric.dimension)
    return text if row.metric.share else f"{row.metric.word} {text}"


def headline(run: RunResult) -> str:
    """The scenario in one line: its name, data, clients, links and seeds, and where its seconds come from."""
    clients, cohort = run.option("data.clients"), run.option("training.cohort")
    who = f"{clients} clients{f', {cohort} a round' if cohort else ''}" if clients else ""
    where = "measured time" if measured_sentences(run) else "virtual time"
    parts = [run.name, run.option("data.name"), who, *attack(run), ", ".join(run.option("network.links") or ())]
    parts += [counted(len(run.seeds), "seed"), where if run.trained else f"{where}, nothing trained"]
    parts += [run.unfinished[0]] if run.unfinished else []
    return " · ".join(filter(None, parts))


def attack(run: RunResult) -> list[str]:
    """How many clients attack, and how, if there are any."""
    clients = run.option("data.clients")
    attacks = [each["malicious"] for each in run.option("failures") or () if "malicious" in each]
    how = [each["kind"] + f", scale {each['scale']:g}" * (each["kind"] != "label_flip") for each in attacks]
    counts = [round(each["share"] * clients) for each in attacks]
    return [f"{count} of {clients} clients attack ({each})" for count, each in zip(counts, how, strict=True)]


def limits_of(run: RunResult) -> list[str]:
    """The budgets, in the scenario's order; none if every run ended within them."""
    both = [pair for label in run.compared for pair in zip(run.results[label], run.moments[label], strict=True)]
    if not any(whole.ended_by_budget or whole.rounds > moment.rounds for whole, moment in both):
        return []
    return [limit(amount, kind) + QUANTITIES[kind].each for kind, amount in run.budgets]


def meaning(run: RunResult) -> str:
    """What the rows show."""
    moment = "end of the last round within all limits" if limits_of(run) else "end of the last round"
    ran, shown = (max(each.rounds for label in run.compared for each in of[label]) for of in (run.results, run.moments))
    moment += f" ({ran} rounds ran)" * (ran > shown)
    moment += ", as the budgets allow none with every seed" * (run.moments is run.results)
    count = len(run.seeds)
    text = f"Rows: {moment}{f', mean of {count} seeds' if count > 1 else ''}"
    if run.trained and len(run.labels) - len(run.baselines) > 1:
        text += f"; behind: {'points' if run.metric.share else run.metric.word}{', ± 95 % interval' * (count > 1)}"
    return f"{text}."


def answers(run: RunResult) -> list[str]:
    """The best method, and the first method at each target; without training the cheapest method of a round."""
    only = f"only the baseline {listed(run.baselines)} ran" if run.baselines == run.labels else ""
    if not run.trained:
        least = {COSTS[kind]: _standing(each, kind) for kind, each in _per_round(run).items() if each is not None}
        nothing = f"There is nothing to compare: {only or 'no method completed a round with every seed'}."
        return [f"Least {name} a round:  {answer}" for name, answer in least.items()] or [nothing]
    limits, rounds = limits_of(run), {each.rounds for label in run.compared for each in run.moments[label]}
    after = "1 round" if rounds == {1} else f"{span(rounds)} rounds"
    start = f"Best within {', '.join(limits)}:" if limits else f"Best after {after}:"
    standing = compare_metric(run)
    missing = [e for e in run.labels if e not in run.baselines and (standing is None or e not in standing.means)]
    some = _partly(run, missing)
    if standing is None:
        none = f"no method with every seed: {some}" if some else "no method has trained a model"
        return [f"{start}  {only or none}"]
    best = f"{start}  {_standing(standing, run.metric.dimension)}"
    if missing:
        best += f"  (not compared: {some})" if some else f"  (without {listed(missing)}: not trained)"
    rows = comparison_rows(run)
    others = [f"Baselines, not compared: {', '.join(_baselines(run, rows, standing))}."] if run.baselines else []
    return [best, *(_first(run, rows, goal) for goal in goals(rows)), *others]


def _partly(run: RunResult, labels: Sequence[str]) -> str:
    """How many seeds of these methods trained within the budgets; empty if none did."""
    found = {label: [not each.trained_nothing for each in run.moments[label]] for label in labels}
    counts = grouped((f"{sum(each)} of {len(each)} seeds", label) for label, each in found.items())
    text = ", ".join(f"{listed(who)} trained in {which}" for which, who in counts.items())
    return text * any(map(any, found.values()))


def _baselines(run: RunResult, rows: Sequence[Row], standing: Comparison) -> list[str]:
    """The baselines, each with the gain of the best method over it."""
    sign, found = 1 if run.metric.better == "higher" else -1, []
    for final, label in [(row.final, row.label) for row in rows if row.label in run.baselines]:
        gain = sign * (standing.means[standing.best].mean - final.mean) if final else 0.0
        size = unit_for([gain], run.metric.dimension).number(abs(gain)) + " points" * run.metric.share
        text = f"{label} ({standing.best} {'−' if gain < 0 else '+'}{size}{_never_trained(run, label)})"
        found.append(text if final else label)
    return found


def _never_trained(run: RunResult, label: str) -> str:
    """How many clients kept the first model, if each has its own: ``; 10 of 20 clients never trained``."""
    if run.entry(label).get("method") != "local" or not all(run.of(label, s).events.is_file() for s in run.seeds):
        return ""
    clients, left = run.scenario["data"]["clients"], set()
    for each in run.moments[label]:
        events = read_events(run.of(label, each.seed).events, ["compute_end", "compute_partial"])
        left.add(clients - len({event.client for event in events if event.round <= each.rounds}))
    return f"; {span(left)} of {clients} clients never trained" * any(left)


def _standing(standing: Comparison, dimension: str) -> str:
    """The best method with its figure, and what is certain about it."""
    best, others = standing.best, [each.label for each in standing.differences]
    figure = quantity(standing.means[best].mean, dimension)
    if not others:
        return f"{best}  {figure}"
    if not standing.undecided:
        return f"{best}  {figure}  (95 % sure, ahead of {others[0] if len(others) == 1 else 'all others'})"
    open_ones = [each.label for each in standing.undecided]
    if all(not any(each.values) and each.values for each in standing.differences):
        return f"all methods are equal, {figure}"
    if standing.seeds < FEWEST_SEEDS:
        seeds = "one seed" if standing.seeds == 1 else f"{standing.seeds} seeds"
        return f"{best}  {figure} is ahead  (not decided: {seeds}, at least {FEWEST_SEEDS} needed)"
    return f"no clear winner: {best}  {figure} is ahead  (not decided: {_few(open_ones)})"


def _few(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 5 else f"{', '.join(names[:5])} and {len(names) - 5} others"


def _first(run: RunResult, rows: Sequence[Row], goal: float) -> str:
    start = f"First to {_goal(goal, rows[0])}:"
    standing, compared = compare_target(run, goal), [row for row in rows if row.label in run.compared]
    if standing is None:
        some = [row.label for row in compared if goal in row.targets and row.targets[goal].reached]
        return f"{start} no method with every seed ({', '.join(some)} with some)." if some else f"{start} no method."
    if len(compared) == 1:
        return f"{start} {standing.best}, after {quantity(standing.means[standing.best].mean, 'seconds')}."
    if standing.seeds < FEWEST_SEEDS:
        return f"{start} {standing.best} is ahead, not decided."
    open_ones = [*(each.label for each in standing.undecided), *_early(compared, goal, standing)]
    if not open_ones:
        return f"{start} {standing.best}{', the only one' if len(standing.means) == 1 else ''}."
    return f"{start} no clear winner ({_few([standing.best, *open_ones])})."


def _early(rows: Sequence[Row], goal: float, standing: Comparison) -> list[str]:
    """The methods that only some seeds reach a target with, but early."""
    best = standing.means[standing.best].mean
    partly = {row.label: row.targets[goal].median for row in rows if goal in row.targets}
    return [label for label, middle in partly.items() if label not in standing.means and middle and middle <= best]


def _per_round(run: RunResult) -> dict[str, Comparison | None]:
    """The methods compared by their costs of a round; those with a seed without a round, or refused, are left out."""

    def cost(kind: str, of: SeedResult) -> float | None:
        counts = of.rounds and not (of.refused and of.trained_nothing)
        return figure(of, QUANTITIES[kind]) / of.rounds if counts else None

    found = {kind: figures_by_seed(run, partial(cost, kind)) for kind in COSTS}
    return {kind: compared(each, highest=False) if each else None for kind, each in found.items()}


def decide(run: RunResult) -> tuple[int, str] | None:
    """The seeds to add so that the first open question has a clear winner, and the question.

    The differences and their spread are assumed to stay as they are; ``None``: nothing is open, or no number of seeds
    that is reasonable decides it.
    """
    for head, standing in standings(run).items():
        open_ones = [each.more_seeds for each in standing.undecided] if standing else []
        if open_ones and None not in open_ones:
            name = "the best" if head == run.metric.word else head.removesuffix(" at")
            return max(each for each in open_ones if each is not None), name
    return None


def standings(run: RunResult) -> dict[str, Comparison | None]:
    """The methods compared by the metric and by each target, under the headings of these columns."""
    if not run.trained:
        return {}
    rows = comparison_rows(run)
    found = {f"{_goal(goal, rows[0])} at": compare_target(run, goal) for goal in goals(rows)}
    return {run.metric.word: compare_metric(run), **found}


def seconds_of_a_seed(run: RunResult) -> float | None:
    """Real seconds of one more seed of all methods: the median time between the files of two runs, for each method."""
    try:
        places = [run.paths.of(label, each.seed) for label, results in run.results.items() for each in results]
        written = sorted(place.rounds.stat().st_mtime for place in places)
    except OSError:
        return None
    gaps = [later - earlier for earlier, later in pairwise(written)]
    return len(run.labels) * median(gaps) if gaps and min(gaps) > 0.01 else None


def next_steps(run: RunResult, path: Path, pictures: Sequence[Path] = ()) -> list[str]:
    """The commands that show more, and the one that decides an open question."""
    lines = [f"Page     edgefl report {path} --html page.html", f"Details  edgefl report {path} --details"]
    if "flower" not in run.scenario and (found := decide(run)) is not None:
        seeds, question = found
        few = f"edgefl simulate {path} --add-seeds {seeds}"
        needed = few if seeds <= 30 else f"too close: about {float(f'{seeds:.1g}'):g} more seeds needed"
        lines.append(f"Decide   {needed}   ({question}{about(run, seeds)})")
    return lines + [f"Picture  {picture}" for picture in pictures]


def about(run: RunResult, seeds: int) -> str:
    """The real time of more seeds: ``, about 4.3 min``; empty if it is unknown."""
    if (each := seconds_of_a_seed(run)) is None:
        return ""
    unit = unit_for([seeds * each], "seconds")
    return f", about {float(f'{seeds * each / unit.scale:.2g}'):g} {unit.symbol}"
