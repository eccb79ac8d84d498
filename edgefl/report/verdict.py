"""The verdict: sentences that name the winner within each budget and the first method at each target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgefl.record.kinds import BUDGETS
from edgefl.record.summary import BudgetResult, SeedResult
from edgefl.report.contrast import EARLIER, Relation, ahead, rule, tie, tied, unknown
from edgefl.report.paired import BySeed, Comparison, compared, figures_by_seed, final_metrics
from edgefl.report.quantities import estimate, limit, quantity
from edgefl.report.rows import (
    ENDS,
    Row,
    by_run,
    comparison_rows,
    early_ends,
    none_completed_a_round,
    run_names,
    seconds_to,
)
from edgefl.report.run_record import RunRecord, measured_sentences
from edgefl.report.seed_plan import more_seeds_sentence
from edgefl.wording import escape, listed, with_article


def verdict(run: RunRecord) -> str:
    """The verdict of a run, one sentence per line.

    Methods are compared by seed (:mod:`edgefl.report.paired`): they are *tied* if the interval of their difference
    includes zero. With one seed there is no interval, so no method wins, and a sentence states this.
    With ``stop: budget`` all budgets apply together: one sentence names the method with the best metric, another
    where each method ended. With ``stop: rounds`` each budget has its own sentence. Without training, time, traffic
    and energy per round are compared, because methods may have different numbers of rounds. If no method completed a
    round, there is nothing to compare, and the verdict says why each one ended.
    """
    rows = comparison_rows(run)
    lines = _sentences(run, rows)
    if _nothing_to_compare(rows):
        lines += [line for found in early_ends(rows).values() for line in found]
    return "\n".join(map(escape, lines))


def verdicts(runs: Sequence[RunRecord]) -> list[tuple[str, list[str]]]:
    """The sentences to print with a table, each run's with its name; a single run has no name.

    The notes below the table say why methods ended early, so these sentences do not.
    """
    sentences = [list(map(escape, _sentences(run, comparison_rows(run)))) for run in runs]
    return by_run(dict(zip(run_names(runs), sentences, strict=True))) if len(runs) > 1 else [("", sentences[0])]


def _nothing_to_compare(rows: Sequence[Row]) -> bool:
    return none_completed_a_round(rows) and any(row.messages for row in rows)


def _sentences(run: RunRecord, rows: Sequence[Row]) -> list[str]:
    if _nothing_to_compare(rows):
        return ["No method completed a round, so there is nothing to compare."]
    if not run.trained:
        lines = [f"No model was evaluated, so there is no {run.metric.word} to compare.", *_costs(run)]
    else:
        lines = [*_metrics(run), *_targets(run, rows), *_front_blocks(run, rows)]
    if len(rows) > 1:
        if all(row.seeds == 1 for row in rows):
            lines.append("With one seed the spread is unknown, so no method wins: differences may be due to chance.")
        elif not run.trained or len(final_metrics(run)) > 1:
            lines.append(rule(len(rows) - 1))
            if (more := more_seeds_sentence(run)) is not None:
                lines.append(more)
    return [*lines, *measured_sentences(run)]


def _metrics(run: RunRecord) -> list[str]:
    budgets = _budgets(run)
    name = f"smoothed {run.metric.word}" if run.smoothed else run.metric.word
    final = final_metrics(run)
    if not budgets:
        return [_winner(_sentence_start(_rounds_clause(run)), final, run, name)]
    if run.scenario.get("stop", "budget") == "rounds":
        return [_under(run, budget) for budget in budgets]
    limits = [limit(budget.limit, budget.kind) for budget in budgets]
    first = ", whichever runs out first" if len(limits) > 1 else ""
    return [_winner(f"Within {listed(limits)}{first},", final, run, name), _stops(run)]


def _budgets(run: RunRecord) -> list[BudgetResult]:
    found: dict[tuple[str, float], BudgetResult] = {}
    for results in run.results.values():
        for result in results:
            for budget in result.budgets:
                found.setdefault((budget.kind, budget.limit), budget)
    return list(found.values())


def _under(run: RunRecord, budget: BudgetResult) -> str:
    def metric_of(result: SeedResult) -> float | None:
        same = [found for found in result.budgets if (found.kind, found.limit) == (budget.kind, budget.limit)]
        return result.within(same[0]) if same and not result.trained_nothing else None

    start = f"Within {limit(budget.limit, budget.kind)},"
    return _winner(start, figures_by_seed(run, metric_of), run, run.metric.word)


def _rounds_clause(run: RunRecord) -> str:
    rounds = sorted({result.rounds for results in run.results.values() for result in results})
    if len(rounds) == 1:
        return f"after {rounds[0]} {'round' if rounds[0] == 1 else 'rounds'},"
    return f"at the end ({rounds[0]} to {rounds[-1]} rounds),"


def _winner(start: str, found: Mapping[str, BySeed], run: RunRecord, name: str) -> str:
    """``start``, the method with the best metric, its differences from the others, and the methods without one."""
    highest, dimension = run.metric.better == "higher", run.metric.dimension
    missing = [label for label in run.labels if label not in found]
    none = f"; {listed(missing)} {_have(missing)} no {name} to compare" if missing else ""
    if not found:
        return f"{start} no method has {with_article(name)} to compare."
    standing = compared(found, highest=highest)
    relation = Relation(dimension, "above" if highest else "below", highest)
    unit = "" if run.metric.share else f"{name} "
    figures = {label: f"{label} ({unit}{estimate(mean, dimension)})" for label, mean in standing.means.items()}
    best, none = tied(standing), f"{unknown(standing)}{none}"
    leader, leaders = figures[best[0]], listed([figures[label] for label in best])
    if len(found) == 1:
        return f"{start} {best[0]} has {with_article(name)} of {estimate(standing.means[best[0]], dimension)}{none}."
    if standing.one_seed:
        return f"{start} {_with_one_seed(standing, figures)}{none}."
    if len(best) > 1:
        return f"{start} {leaders} are tied: {tie(standing, relation)}{none}."
    if standing.separated:
        return f"{start} {leader} wins: it is {ahead(standing, relation)}{none}."
    return f"{start} {leader} has the best mean{none}."


def _with_one_seed(standing: Comparison, figures: Mapping[str, str]) -> str:
    best, others = ([figures[label] for label in labels] for labels in (tied(standing), standing.others))
    behind = f"ahead of {listed(others)}" if others else ""
    if len(best) == 1:
        return f"{best[0]} is {behind}"
    return ", ".join(filter(None, (f"{listed(best)} are equal", behind)))


def _stops(run: RunRecord) -> str:
    """Where each method ended, at budgets in the scenario's order first, and the budgets that no run reached."""
    limits: dict[str, str] = {budget.kind: limit(budget.limit, budget.kind) for budget in _budgets(run)}
    reasons: dict[str, list[str]] = {kind: [] for kind in limits}
    for label, results in run.results.items():
        for reason in dict.fromkeys(result.stop.reason for result in results):
            count = sum(result.stop.reason == reason for result in results)
            seeds = "" if count == len(results) else f" ({_of(count, len(results))})"
            reasons.setdefault(reason, []).append(f"{label}{seeds}")
    clauses = [
        f"{listed(methods)} ended {f'at the budget of {limits[end]}' if end in limits else ENDS.get(end, f'by {end}')}"
        for end, methods in reasons.items()
        if methods
    ]
    unreached = [limits[kind] for kind in limits if not reasons[kind]]
    if unreached:
        clauses.append(f"budgets not reached: {listed(unreached)}")
    return f"{'; '.join(clauses)}."


def _targets(run: RunRecord, rows: Sequence[Row]) -> list[str]:
    goals = sorted({goal for row in rows for goal in row.targets}, reverse=run.metric.better == "lower")
    return [_target(goal, run, rows) for goal in goals]


def _front_blocks(run: RunRecord, rows: Sequence[Row]) -> list[str]:
    """A sentence about methods that train old front blocks because few clients take part in a round."""
    old = [f"{row.label}: {estimate(age, 'rounds')}" for row in rows if (age := row["blocks.front_age"]) is not None]
    training, data = run.scenario.get("training", {}), run.scenario.get("data", {})
    cohort, clients = training.get("cohort"), data.get("clients")
    if not old or cohort is None or clients is None or cohort >= clients:
        return []
    return [
        f"Only {cohort} of {clients} clients take part in a round, so they train old front blocks ({', '.join(old)}); "
        "in FedBR's theory, all clients take part in each round."
    ]


def _target(value: float, run: RunRecord, rows: Sequence[Row]) -> str:
    metric = run.metric
    goal = limit(value, metric.dimension) if metric.share else f"{metric.word} {limit(value, metric.dimension)}"
    found = {row.label: row.targets[value] for row in rows if value in row.targets}
    always = figures_by_seed(run, lambda result: seconds_to(value, result))
    partly = {label: target for label, target in found.items() if 0 < target.reached < target.seeds}
    never = [label for label, target in found.items() if target.reached == 0]
    some = []
    for label, target in sorted(partly.items(), key=lambda item: -item[1].reached / item[1].seeds):
        median = "" if target.median is None else f" (median {quantity(target.median, 'seconds')})"
        some.append(f"{label} reaches it on {_of(target.reached, target.seeds)}{median}")
    if not always:
        if not some:
            return f"{rows[0].label} does not reach {goal}." if len(rows) == 1 else f"No method reaches {goal}."
        start = "No method reaches" if len(rows) > 1 else f"{rows[0].label} does not reach"
        return f"{start} {goal} on every seed: {'; '.join(some)}."
    standing = compared(always, highest=False)
    best = tied(standing)
    figures = {label: f"{label} ({estimate(mean, 'seconds')})" for label, mean in standing.means.items()}
    leader, leaders = figures[best[0]], listed([figures[label] for label in best])
    if len(found) == 1:
        start = f"{best[0]} reaches {goal} after {estimate(standing.means[best[0]], 'seconds')}"
    elif len(always) == 1:
        start = f"Only {leader} reaches {goal}{' on every seed' if some else ''}"
    elif len(best) > 1:
        start = f"{leaders} are tied as the first to reach {goal}"
        start += "" if standing.one_seed else f": {tie(standing, EARLIER)}"
    elif standing.separated:
        start = f"{leader} reaches {goal} first, {ahead(standing, EARLIER)}"
    else:
        start = f"{leader} has the earliest mean time to {goal}"
    start += unknown(standing)
    if never and len(always) > 1:
        some.append(f"{listed(never)} {'does' if len(never) == 1 else 'do'} not reach it")
    return "; ".join([start, *some]) + "."


def _costs(run: RunRecord) -> list[str]:
    """The methods that need the least time, traffic and energy per round, if nothing was trained.

    A method with a seed that ended before its first round has no cost per round; it is named but not compared.
    """
    roundless = [label for label, results in run.results.items() if any(result.rounds == 0 for result in results)]
    lines = [_ended_early(label, run.results[label]) for label in roundless]
    if len(roundless) == len(run.results):
        return lines
    per_round = {
        label: {result.seed: _of_a_round(run, label, result) for result in results}
        for label, results in run.results.items()
        if label not in roundless
    }
    for index, (name, dimension) in enumerate(_MEASURES):
        standing = compared(
            {label: {seed: costs[index] for seed, costs in found.items()} for label, found in per_round.items()},
            highest=False,
        )
        needs, best = {label: estimate(mean, dimension) for label, mean in standing.means.items()}, tied(standing)
        figures = [f"{label} ({needs[label]})" for label in best]
        less = Relation(dimension, "less than", verb="needs")
        if len(needs) == 1:
            lines.append(f"{best[0]} needs {needs[best[0]]} of {name} per round.")
        elif len({mean.mean for mean in standing.means.values()}) == 1:
            methods = "All other methods" if roundless else "All methods"
            lines.append(f"{methods} need the same {name} per round, {needs[best[0]]}.")
        elif len(best) == 1:
            by = "" if standing.one_seed or not standing.separated else f": {ahead(standing, less)}"
            lines.append(f"{figures[0]} needs the least {name} per round{by}{unknown(standing)}.")
        else:
            by = "" if standing.one_seed else f": {tie(standing, less)}"
            lines.append(f"{listed(figures)} are tied for the least {name} per round{by}{unknown(standing)}.")
    return lines


_MEASURES = (("time", "seconds"), ("download", "bytes"), ("upload", "bytes"), ("energy", "joules"))


def _of_a_round(run: RunRecord, label: str, result: SeedResult) -> tuple[float, ...]:
    """The mean cost of a finished round in each of the measures.

    A budget may end a run in the middle of a round; what this round had cost by then does not count.
    """
    totals: tuple[float, ...] = (result.seconds, result.bytes.down, result.bytes.up, result.joules)
    if result.stop.reason in BUDGETS:
        rows = run.rounds_of(label, result.seed)
        sums = (float(sum(rows.column(name).to_pylist())) for name in ("bytes_down", "bytes_up", "joules"))
        totals = (rows.column("seconds")[-1].as_py(), *sums)
    return tuple(total / result.rounds for total in totals)


def _ended_early(label: str, results: Sequence[SeedResult]) -> str:
    reasons = sorted({result.stop.reason for result in results if result.rounds == 0})
    return f"{label} ended before its first round ({listed(reasons)}), so it has no cost per round."


def _of(count: int, seeds: int) -> str:
    return f"{count} of {seeds} seeds"


def _have(names: Sequence[str]) -> str:
    return "has" if len(names) == 1 else "have"


def _sentence_start(clause: str) -> str:
    return clause[:1].upper() + clause[1:]
