"""The verdict: sentences that name the winner within each budget and the first method at each target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from edgefl.printable import printable_line
from edgefl.record.kinds import BUDGETS
from edgefl.record.metric import Metric
from edgefl.record.summary import BudgetResult, SeedResult
from edgefl.report.early_ends import ENDS, early_ends, none_completed_a_round
from edgefl.report.measured import measured_sentence
from edgefl.report.quantities import estimate, limit, quantity
from edgefl.report.rows import Row, by_run, comparison_rows, run_names
from edgefl.report.run_record import RunRecord
from edgefl.report.statistics import Estimate, mean_interval, mean_or_none
from edgefl.report.ties import leaders
from edgefl.wording import listed, with_article


def verdict(run: RunRecord) -> str:
    """The verdict of a run, one sentence per line.

    Methods are *tied* if their 95 % intervals overlap. With one seed there is no interval, and a sentence states this.
    With ``stop: budget`` all budgets apply together: one sentence names the method with the best metric, another
    where each method ended. With ``stop: rounds`` each budget has its own sentence. Without training, time, traffic
    and energy per round are compared, because methods may have different numbers of rounds. If no method completed a
    round, there is nothing to compare, and the verdict says why each one ended.
    """
    rows = comparison_rows(run)
    lines = _sentences(run, rows)
    if _nothing_to_compare(rows):
        lines += [line for found in early_ends(rows).values() for line in found]
    return "\n".join(map(printable_line, lines))


def verdicts(runs: Sequence[RunRecord]) -> list[tuple[str, list[str]]]:
    """The sentences to print with a table, each run's with its name; a single run has no name.

    The notes below the table say why methods ended early, so these sentences do not.
    """
    sentences = [list(map(printable_line, _sentences(run, comparison_rows(run)))) for run in runs]
    return by_run(dict(zip(run_names(runs), sentences, strict=True))) if len(runs) > 1 else [("", sentences[0])]


def _nothing_to_compare(rows: Sequence[Row]) -> bool:
    return none_completed_a_round(rows) and any(row.messages for row in rows)


def _sentences(run: RunRecord, rows: Sequence[Row]) -> list[str]:
    if _nothing_to_compare(rows):
        return ["No method completed a round, so there is nothing to compare."]
    if not run.trained:
        lines = [f"No model was evaluated, so there is no {run.metric.word} to compare.", *_costs(run)]
    else:
        lines = [*_metrics(run), *_targets(rows, run.metric), *_front_blocks(run, rows)]
    if all(row.seeds == 1 for row in rows) and len(rows) > 1:
        lines.append("With one seed the spread is unknown: differences may be due to chance.")
    if (measured := measured_sentence(run)) is not None:
        lines.append(measured)
    return lines


def _metrics(run: RunRecord) -> list[str]:
    budgets = _budgets(run)
    name = f"smoothed {run.metric.word}" if run.smoothed else run.metric.word
    final = _over_methods(run, lambda result: _metric_at_the_end(result, smoothed=run.smoothed))
    if not budgets:
        return [_winner(_sentence_start(_rounds_clause(run)), final, run, name)]
    if run.scenario.get("stop", "budget") == "rounds":
        return [_under(run, budget) for budget in budgets]
    limits = [limit(budget.limit, budget.kind) for budget in budgets]
    first = ", whichever runs out first" if len(limits) > 1 else ""
    return [_winner(f"Within {listed(limits)}{first},", final, run, name), _stops(run)]


def _metric_at_the_end(result: SeedResult, *, smoothed: bool) -> float | None:
    """The metric of the last model; ``None`` if it is the untrained one."""
    if result.trained_nothing:
        return None
    return result.metric.ema if smoothed else result.metric.final


def _budgets(run: RunRecord) -> list[BudgetResult]:
    found: dict[tuple[str, float], BudgetResult] = {}
    for results in run.results.values():
        for result in results:
            for budget in result.budgets:
                found.setdefault((budget.kind, budget.limit), budget)
    return list(found.values())


def _over_methods(run: RunRecord, figure: Callable[[SeedResult], float | None]) -> dict[str, Estimate]:
    """A figure's mean by method; methods without the figure in any seed are omitted."""
    means = {label: mean_or_none([figure(result) for result in results]) for label, results in run.results.items()}
    return {label: mean for label, mean in means.items() if mean is not None}


def _under(run: RunRecord, budget: BudgetResult) -> str:
    def metric_of(result: SeedResult) -> float | None:
        same = [found for found in result.budgets if (found.kind, found.limit) == (budget.kind, budget.limit)]
        return result.within(same[0]) if same and not result.trained_nothing else None

    start = f"Within {limit(budget.limit, budget.kind)},"
    return _winner(start, _over_methods(run, metric_of), run, run.metric.word)


def _rounds_clause(run: RunRecord) -> str:
    rounds = sorted({result.rounds for results in run.results.values() for result in results})
    if len(rounds) == 1:
        return f"after {rounds[0]} {'round' if rounds[0] == 1 else 'rounds'},"
    return f"at the end ({rounds[0]} to {rounds[-1]} rounds),"


def _winner(start: str, found: Mapping[str, Estimate], run: RunRecord, name: str) -> str:
    """``start``, the method with the best metric, and the methods without one."""
    highest, dimension = run.metric.better == "higher", run.metric.dimension
    missing = [label for label in run.labels if label not in found]
    none = f"; {listed(missing)} {_have(missing)} no {name} to compare" if missing else ""
    if not found:
        return f"{start} no method has {with_article(name)} to compare."
    best = leaders(found, highest=highest)
    unit = "" if run.metric.share else f"{name} "
    figures = [f"{label} ({unit}{estimate(found[label], dimension)})" for label in best]
    sign = -1 if highest else 1
    others = sorted((label for label in found if label not in best), key=lambda label: sign * found[label].mean)
    if len(found) == 1:
        return f"{start} {best[0]} has {with_article(name)} of {estimate(found[best[0]], dimension)}{none}."
    if len(best) == 1:
        second = f"{others[0]} ({estimate(found[others[0]], dimension)})"
        return f"{start} {figures[0]} wins, ahead of {second}{none}."
    ahead = f", ahead of {listed(others)}" if others else ""
    return f"{start} {listed(figures)} are tied{ahead}{none}."


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


def _targets(rows: Sequence[Row], metric: Metric) -> list[str]:
    goals = sorted({goal for row in rows for goal in row.targets}, reverse=metric.better == "lower")
    return [_target(goal, rows, metric) for goal in goals]


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


def _target(value: float, rows: Sequence[Row], metric: Metric) -> str:
    goal = limit(value, metric.dimension) if metric.share else f"{metric.word} {limit(value, metric.dimension)}"
    found = {row.label: row.targets[value] for row in rows if value in row.targets}
    always = {label: target.mean for label, target in found.items() if target.mean is not None}
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
    best = leaders(always, highest=False)
    figures = [f"{label} ({estimate(always[label], 'seconds')})" for label in best]
    if len(found) == 1:
        start = f"{best[0]} reaches {goal} after {estimate(always[best[0]], 'seconds')}"
    elif len(always) == 1:
        start = f"Only {figures[0]} reaches {goal}{' on every seed' if some else ''}"
    elif len(best) == 1:
        second = min((label for label in always if label not in best), key=lambda label: always[label].mean)
        start = f"{figures[0]} reaches {goal} first, before {second} ({estimate(always[second], 'seconds')})"
    else:
        start = f"{listed(figures)} are tied as the first to reach {goal}"
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
        label: [_of_a_round(run, label, result) for result in results]
        for label, results in run.results.items()
        if label not in roundless
    }
    for index, (name, dimension) in enumerate(_MEASURES):
        needs = {label: mean_interval([costs[index] for costs in found]) for label, found in per_round.items()}
        best = leaders(needs, highest=False)
        figures = [f"{label} ({estimate(needs[label], dimension)})" for label in best]
        if len(needs) == 1:
            lines.append(f"{best[0]} needs {estimate(needs[best[0]], dimension)} of {name} per round.")
        elif len({need.mean for need in needs.values()}) == 1:
            methods = "All other methods" if roundless else "All methods"
            lines.append(f"{methods} need the same {name} per round, {estimate(needs[best[0]], dimension)}.")
        elif len(best) == 1:
            lines.append(f"{figures[0]} needs the least {name} per round.")
        else:
            lines.append(f"{listed(figures)} are tied for the least {name} per round.")
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
