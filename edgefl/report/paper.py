"""The comparison in the layout of papers: accuracy at rounds, and rounds to targets.

FedMLB (Kim et al. 2022, Tables 1 to 4) reports the exponential moving average of the accuracy with 0.9 at two rounds,
and the rounds to two targets, with ``1000+`` if a run of 1000 rounds does not reach a target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgefl.errors import UserError
from edgefl.report.curves import Curve, curve_of
from edgefl.report.grid import Cell, Grid, Head, Table, estimate_data, estimate_record, target_data, target_record
from edgefl.report.paired import BySeed, compared
from edgefl.report.quantities import CUT_OFF, cut_off, limit, unit_for
from edgefl.report.rows import Row, comparison_rows, described, lost_work, with_run_names
from edgefl.report.run_result import RunResult
from edgefl.report.statistics import Estimate, TimeToTarget, mean_or_none, time_to_target

MISSING = "–"


@dataclass(frozen=True)
class PaperRow:
    """One method of one run.

    Attributes:
        at: the smoothed accuracy at each round of the table; ``None`` if a seed ended earlier.
        to: for each target, the rounds that the seeds needed; empty if the run trained nothing.
        ended: the number of rounds of the shortest seed.
        compared: the method's row in the comparison, for refused jobs and rounds without an update.
        curves: each seed's smoothed accuracy.
    """

    run: str
    label: str
    seeds: int
    at: dict[int, Estimate | None]
    to: dict[float, TimeToTarget]
    ended: int
    compared: Row
    curves: dict[int, Curve]

    def accuracies(self, round: int) -> BySeed | None:
        """Each seed's smoothed accuracy at a round; ``None`` if a seed ended earlier."""
        return _complete({seed: curve.at_round(round) for seed, curve in self.curves.items() if self.at[round]})

    def rounds_to(self, target: float) -> BySeed | None:
        """The rounds that each seed needed for a target; ``None`` if a seed did not reach it."""
        metric = self.compared.metric
        to = {
            seed: curve.spent_to(target, "rounds", metric) for seed, curve in self.curves.items() if target in self.to
        }
        return _complete(to)


def _complete(found: Mapping[int, float | None]) -> BySeed | None:
    known = {seed: value for seed, value in found.items() if value is not None}
    return known if known and len(known) == len(found) else None


def paper_table(runs: Sequence[RunResult], at: Sequence[int] = ()) -> Table:
    """The table of a paper; see :func:`paper_rows`."""
    rows = paper_rows(runs, at)
    data = {"runs": described(runs), "rows": [_data(row) for row in rows]}
    return Table(paper_grid(rows), [_record(row) for row in rows], data)


def paper_rows(runs: Sequence[RunResult], at: Sequence[int] = (), targets: Sequence[float] = ()) -> list[PaperRow]:
    """One row for each method.

    Args:
        runs: finished runs.
        at: rounds at which the accuracy is shown; by default half and all of the longest run's rounds.
        targets: accuracies in (0, 1]; those of the runs' scenarios if not given.

    Raises:
        UserError: nothing was trained, a round is beyond the planned rounds of all runs, or a run cannot be read.
    """
    if not any(run.trained for run in runs):
        raise UserError("nothing was trained, so there is no accuracy to show; remove --layout paper")
    other = [run.metric.name for run in runs if not run.metric.is_accuracy]
    if other:
        raise UserError(f"papers' tables show the accuracy, and this run has {other[0]}; remove --layout paper")
    longest = max(result.rounds for run in runs for results in run.results.values() for result in results)
    beyond = [round for round in at if round > max(longest, *map(_planned, runs))]
    if beyond:
        have = "the run has" if len(runs) == 1 else "the longest run has"
        raise UserError(f"{have} {longest} rounds", file=f"--at {beyond[0]}")
    rounds = sorted(set(at)) or sorted({max(1, longest // 2), longest})
    goals = sorted(set(targets)) or sorted(
        {target.value for run in runs for found in run.results.values() for one in found for target in one.targets}
    )
    methods = [(run, label) for run in runs for label in run.labels]
    return [
        _row(run, label, row, rounds, goals) for (run, label), row in zip(methods, comparison_rows(*runs), strict=True)
    ]


def _planned(run: RunResult) -> int:
    """The planned rounds of a run, which may end earlier at a budget or a target."""
    return int((run.scenario.get("training") or {}).get("rounds") or 0)


def _row(run: RunResult, label: str, row: Row, rounds: Sequence[int], targets: Sequence[float]) -> PaperRow:
    curves = {result.seed: curve_of(run, label, result.seed, "accuracy_ema") for result in run.results[label]}
    seeds = list(curves.values())
    ended = min(result.rounds for result in run.results[label])
    complete = [round for round in rounds if round <= ended]
    return PaperRow(
        run=row.run,
        label=label,
        seeds=len(seeds),
        at=dict.fromkeys(rounds)
        | {round: mean_or_none([curve.at_round(round) for curve in seeds]) for round in complete},
        to={
            target: time_to_target([curve.spent_to(target, "rounds", run.metric) for curve in seeds])
            for target in (targets if run.trained else ())
        },
        ended=ended,
        compared=row,
        curves=curves,
    )


def paper_grid(rows: Sequence[PaperRow]) -> Grid:
    """The rows as a table; the best figures of a column, and those tied with it, are marked."""
    several = len({row.run for row in rows}) > 1
    rounds, targets = list(rows[0].at), list(dict.fromkeys(target for row in rows for target in row.to))
    heads = [Head("run", text=True)] * several + [Head("method", text=True)]
    heads += [Head(f"accuracy at {round}", "%") for round in rounds]
    heads += [Head(f"rounds to {limit(target, 'fraction')}") for target in targets]
    best_at = {round: _best([row.accuracies(round) for row in rows], highest=True) for round in rounds}
    best_to = {target: _best([row.rounds_to(target) for row in rows], highest=False) for target in targets}
    cells = [
        [
            *([Cell(row.run)] * several),
            Cell(row.label),
            *(_accuracy(row.at[round], best=number in best_at[round]) for round in rounds),
            *(_rounds(row, target, best=number in best_to[target]) for target in targets),
        ]
        for number, row in enumerate(rows)
    ]
    return Grid(heads, cells, _notes(rows))


def _best(found: Sequence[BySeed | None], *, highest: bool) -> set[int]:
    """The indices of the rows with the best figure and those tied with it; empty with fewer than two figures."""
    known = {str(number): by_seed for number, by_seed in enumerate(found) if by_seed is not None}
    return {int(number) for number in compared(known, highest=highest).leaders} if len(known) > 1 else set()


def _accuracy(value: Estimate | None, *, best: bool) -> Cell:
    if value is None:
        return Cell(MISSING)
    percent = unit_for([], "fraction")
    return Cell(percent.number(value.mean), percent.spread(value), best)


def _rounds(row: PaperRow, target: float, *, best: bool) -> Cell:
    found = row.to.get(target)
    if found is None:
        return Cell(MISSING)
    if found.mean is not None:
        rounds = unit_for([], "count")
        return Cell(rounds.number(found.mean.mean), rounds.spread(found.mean), best)
    count = f"({found.reached}/{found.seeds})" if found.reached else ""
    return Cell(f"{row.ended}+" if found.median is None else f"median {found.median:.0f}", count)


def _notes(rows: Sequence[PaperRow]) -> list[str]:
    found = ["Accuracies are exponential moving averages over the evaluations (0.9 of the last one)."]
    counts = sorted({row.seeds for row in rows})
    if counts == [1]:
        found.append("One seed: figures without an interval.")
    else:
        several = " or ".join(str(count) for count in counts)
        found.append(f"Mean ± half width of the 95 % interval (Student's t) over {several} seeds; bold: best, or tied.")
    to = [target.mean for row in rows for target in row.to.values()]
    if cut_off([value for row in rows for value in row.at.values()], to):
        found.append(CUT_OFF)
    if any(target.mean is None for row in rows for target in row.to.values()):
        found.append("N+: the target is not reached within the N rounds that were run.")
    if any(0 < target.reached < target.seeds for row in rows for target in row.to.values()):
        found.append(
            "(k/n): k of n seeds reach it; the median is over all seeds, and those that do not reach it count as last."
        )
    if any(value is None for row in rows for value in row.at.values()):
        found.append(f"{MISSING}: a seed ended before this round, or nothing was trained.")
    return found + with_run_names([row.compared for row in rows], lost_work)


def _record(row: PaperRow) -> dict[str, object]:
    """A row for CSV."""
    record: dict[str, object] = {"run": row.run, "method": row.label, "seeds": row.seeds, "rounds": row.ended}
    for name in _LOST:
        record |= estimate_record(name, row.compared[name])
    for round, value in row.at.items():
        record |= estimate_record(f"accuracy_ema_at_{round}", value)
    for target, found in row.to.items():
        record |= target_record(f"rounds_to_{target:g}", found)
    return record


def _data(row: PaperRow) -> dict[str, object]:
    """A row for JSON."""
    missing = {"mean": None, "half_width": None}
    return {
        "run": row.run,
        "method": row.label,
        "seeds": row.seeds,
        "rounds": row.ended,
        **{name: estimate_data(row.compared[name]) for name in _LOST},
        "accuracy_ema": [{"round": round, **(estimate_data(value) or missing)} for round, value in row.at.items()],
        "targets": [{"accuracy": goal, **target_data(found, "rounds")} for goal, found in row.to.items()],
    }


_LOST = ("rounds_without_update", "refused")
