"""What there is of a run that has not ended, in the form of a finished one."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from edgefl.errors import UserError
from edgefl.record.figures import figures, finite, totals_of
from edgefl.record.metric import Metric
from edgefl.record.paths import RunPaths, how_to_continue
from edgefl.record.rounds import RoundRow, columns_of
from edgefl.record.summary import MetricResult, SeedResult, Stop, Values
from edgefl.record.tables import rounds_table
from edgefl.record.unfinished import journal_rows, read_unfinished, rounds_in
from edgefl.report.quantities import quantity
from edgefl.report.run_result import RunResult
from edgefl.version import __version__
from edgefl.yaml_file import read_yaml

Rows = Mapping[tuple[str, int], Sequence[RoundRow]]
"""The rounds of runs in progress, by label and seed."""


class UnfinishedRun(RunResult):
    """Finished runs, and runs in progress up to the last of their ``rows``."""

    def __init__(
        self,
        path: Path,
        finished: Mapping[str, Sequence[SeedResult]],
        rows: Rows,
        metric: Metric,
        *,
        edgefl: str = __version__,
    ) -> None:
        self.path = self.given = path
        self.scenario: dict[str, Any] = read_yaml(RunPaths(path).scenario)
        self.summary = {"scenario": self.scenario["name"], "edgefl": edgefl}
        self._rows = {place: own for place, own in rows.items() if own}
        began = {label: [entry(own, seed, metric) for (of, seed), own in self._rows.items() if of == label]
                 for label, _ in self._rows}  # fmt: skip
        labels = dict.fromkeys([*finished, *began])
        self.results = {label: (*finished.get(label, ()), *began.get(label, ())) for label in labels}

    def rounds_of(self, label: str, seed: int) -> pa.Table:
        if (label, seed) in self._rows:
            return rounds_table(self._rows[label, seed])
        return super().rounds_of(label, seed)


def entry(rows: Sequence[RoundRow], seed: int, metric: Metric) -> SeedResult:
    """The entry of a run that had ended after these rounds."""
    columns = columns_of(rows)
    known, averages = (columns[name][np.isfinite(columns[name])].tolist() for name in ("metric", "metric_ema"))
    values = (
        dict(zip(("final", "best", "ema"), (known[-1], metric.best(*known), averages[-1]), strict=True))
        if known
        else {}
    )
    return SeedResult(
        seed=seed,
        stop=Stop(reason="unfinished", round=len(rows)),
        accuracy=Values(**(values if metric.is_accuracy else {})),
        metric=MetricResult(
            **metric._replace(title=metric.word)._asdict(), **{k: finite(v) for k, v in values.items()}
        ),
        targets=(),
        budgets=(),
        **figures(totals_of(columns)),
    )


def unfinished_run(path: Path, metric: Callable[[], Metric]) -> UnfinishedRun:
    """The finished runs of a directory in progress; while there is none, the rounds of the one in progress.

    ``metric`` returns the metric of the runs.

    Raises:
        UserError: no round has ended, or those that ended are kept nowhere.
    """
    state = read_unfinished(path)
    measured = next((each.metric.metric for of in state.finished.values() for each in of), None) or metric()
    scenario = read_yaml(RunPaths(path).scenario)
    rows = {place: rounds_in(journal_rows(file), measured) for place, file in state.journals.items()}
    done, most = (
        sum(map(len, state.finished.values())),
        scenario["training"]["rounds"] if "training" in scenario else None,
    )
    head = f"unfinished: {done} of {len(state.labels) * len(scenario['seeds'])} runs"
    words = [_progress(*place, own, most, measured) for place, own in rows.items() if own]
    sentence = "; ".join([f"{head[:1].upper()}{head[1:]} are complete", *words])
    sentence += f"; if no process works on it: {how_to_continue(path)}"
    if not done and not any(rows.values()):
        raise UserError(f"{sentence[:1].lower()}{sentence[1:]}: no round is kept yet", file=str(path))
    result = UnfinishedRun(path, state.finished, {} if done else rows, measured, edgefl=state.edgefl)
    result.unfinished = (head, sentence)
    return result


def _progress(label: str, seed: int, rows: Sequence[RoundRow], most: int | None, metric: Metric) -> str:
    result = entry(rows, seed, metric)
    best = (
        "" if result.metric.best is None else f", best {metric.word} {quantity(result.metric.best, metric.dimension)}"
    )
    of = f" of {most}" if most else ""
    return f"{label}, seed {seed}, is after round {len(rows)}{of} ({quantity(result.seconds, 'seconds')}{best})"
