"""The comparison in the layout of papers: accuracy at rounds, and rounds to targets.

FedMLB (Kim et al. 2022, Tables 1 to 4) reports the exponential moving average of the accuracy with 0.9 at two rounds,
and the rounds to two targets, with ``1000+`` if a run of 1000 rounds does not reach a target.
"""

from collections.abc import Sequence
from typing import NamedTuple

from edgefl.errors import UserError
from edgefl.report.curves import Curve, curve_of
from edgefl.report.paired import compared
from edgefl.report.quantities import limit
from edgefl.report.rows import Row, comparison_rows, described, remarks
from edgefl.report.run_result import RunResult
from edgefl.report.statistics import NO_ESTIMATE, Estimate, TimeToTarget, mean_or_none, time_to_target
from edgefl.report.table import MISSING, Column, Table, estimate_data, figures, hidden, target_data, words


class PaperRow(NamedTuple):
    """One method of one run."""

    compared: Row  # the method's row in the comparison
    at: dict[int, Estimate | None]  # the smoothed accuracy at each round of the table; None if a seed ended earlier
    # for each target, the rounds that the seeds needed; empty if the run trained nothing
    to: dict[float, TimeToTarget]
    ended: int  # the number of rounds of the shortest seed
    curves: dict[int, Curve]  # each seed's smoothed accuracy

    def accuracies(self, round: int) -> dict[int, float | None]:
        """Each seed's smoothed accuracy at a round; none if a seed ended earlier."""
        return {seed: curve.at_round(round) for seed, curve in self.curves.items() if self.at[round]}

    def rounds_to(self, target: float) -> dict[int, float | None]:
        """The rounds that each seed needed for a target; none if nothing was trained."""
        curves, metric = self.curves if target in self.to else {}, self.compared.metric
        return {seed: curve.spent_to(target, "rounds", metric) for seed, curve in curves.items()}


def paper_table(runs: Sequence[RunResult], at: Sequence[int] = ()) -> Table:
    """The table of a paper; see :func:`paper_rows`. Marked: the best figures, and those not decided against them."""
    rows = paper_rows(runs, at)
    compared = [row.compared for row in rows]
    run = words("run", [row.run for row in compared], "run")
    method = words("method", [row.label for row in compared], "method")
    facts = [hidden([row.seeds for row in compared], "seeds"), hidden([row.ended for row in rows], "rounds")]
    facts += [hidden([row[name] for row in compared], name) for name in _LOST]
    columns = []
    for round in rows[0].at:
        column = figures(f"accuracy at {round}", [row.at[round] for row in rows], "fraction", spread=True)
        best = _best([row.accuracies(round) for row in rows], highest=True)
        values = [row.at[round] or NO_ESTIMATE for row in rows]
        columns.append(column._replace(values=values, key=f"accuracy_ema_at_{round}", best=best))
    for target in dict.fromkeys(target for row in rows for target in row.to):
        cells, found = [_rounds(row, target) for row in rows], [row.to.get(target) for row in rows]
        best = _best([row.rounds_to(target) for row in rows], highest=False)
        head = f"rounds to {limit(target, 'fraction')}"
        columns.append(Column(head, cells, found, f"rounds_to_{target:g}", best=best))
    several = len({row.run for row in compared}) > 1
    data = {"runs": described(runs), "rows": [_data(row) for row in rows]}
    return Table([run] * several + [method, *columns], _notes(rows), data=data, files=[run, method, *facts, *columns])


def paper_rows(runs: Sequence[RunResult], at: Sequence[int] = ()) -> list[PaperRow]:
    """One row for each method; ``at``: rounds of the accuracies, by default half and all of the longest run's."""
    if not any(run.trained for run in runs):
        raise UserError("nothing was trained, so there is no accuracy to show; remove --layout paper")
    other = [run.metric.name for run in runs if not run.metric.is_accuracy]
    if other:
        raise UserError(f"papers' tables show the accuracy, and this run has {other[0]}; remove --layout paper")
    longest = max(result.rounds for run in runs for results in run.results.values() for result in results)
    planned = [run.option("training.rounds") or 0 for run in runs]  # they may end earlier
    beyond = [round for round in at if round > max(longest, *planned)]
    if beyond:
        have = "the run has" if len(runs) == 1 else "the longest run has"
        raise UserError(f"{have} {longest} rounds", file=f"--at {beyond[0]}")
    rounds = sorted(set(at)) or sorted({max(1, longest // 2), longest})
    goals = sorted({goal for run in runs for goal in run.goals})
    methods = [(run, label) for run in runs for label in run.labels]
    compared = comparison_rows(*runs)
    return [_row(run, label, row, rounds, goals) for (run, label), row in zip(methods, compared, strict=True)]


def _row(run: RunResult, label: str, row: Row, rounds: Sequence[int], targets: Sequence[float]) -> PaperRow:
    curves = {result.seed: curve_of(run, label, result.seed, "accuracy_ema") for result in run.results[label]}
    seeds, ended = list(curves.values()), min(result.rounds for result in run.results[label])
    at = {each: mean_or_none([one.at_round(each) for one in seeds]) if each <= ended else None for each in rounds}
    to = {goal: time_to_target([each.spent_to(goal, "rounds", run.metric) for each in seeds]) for goal in targets}
    return PaperRow(row, at, to if run.trained else {}, ended, curves)


def _best(found: Sequence[dict[int, float | None]], *, highest: bool) -> frozenset[int]:
    """The rows with the best figure and those not decided against it; empty with fewer than two complete figures."""
    every = [{seed: value for seed, value in of.items() if value is not None} for of in found]
    known = {str(row): of for row, of in enumerate(every) if of and len(of) == len(found[row])}
    return frozenset(int(row) for row in compared(known, highest=highest).leaders) if len(known) > 1 else frozenset()


def _rounds(row: PaperRow, target: float) -> str:
    found = row.to.get(target)
    if found is None:
        return MISSING
    if found.mean is not None:
        return figures("", [found.mean], "count", spread=True).cells[0]
    count = f" ({found.reached}/{found.seeds})" if found.reached else ""
    return (f"{row.ended}+" if found.median is None else f"median {found.median:.0f}") + count


def _notes(rows: Sequence[PaperRow]) -> list[str]:
    several = " or ".join(str(count) for count in sorted({row.compared.seeds for row in rows}))
    found = [
        "Accuracies are exponential moving averages over the evaluations (0.9 of the last one).",
        f"Mean ± half width of the 95 % interval over {several} seeds; bold: best, or not decided against it.",
    ]
    if any(target.mean is None for row in rows for target in row.to.values()):
        found.append("N+: not reached within the N rounds that were run; (k/n): reached by k of n seeds.")
    if any(value is None for row in rows for value in row.at.values()):
        found.append(f"{MISSING}: a seed ended before this round, or nothing was trained.")
    return found + remarks([row.compared for row in rows])


def _data(row: PaperRow) -> dict[str, object]:
    compared, missing = row.compared, {"mean": None, "half_width": None}
    return {
        "run": compared.run,
        "method": compared.label,
        "seeds": compared.seeds,
        "rounds": row.ended,
        **{name: estimate_data(compared[name]) for name in _LOST},
        "accuracy_ema": [{"round": round, **(estimate_data(value) or missing)} for round, value in row.at.items()],
        "targets": [{"accuracy": goal, **target_data(found, "rounds")} for goal, found in row.to.items()],
    }


_LOST = ("rounds_without_update", "refused")
