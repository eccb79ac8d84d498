"""The data of a finished run, read from its directory."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from edgefl.errors import UserError, nearest
from edgefl.files import user_path
from edgefl.record import RunPaths, SeedPaths
from edgefl.record.figures import Floats, Quantity, at, declare, moment
from edgefl.record.metric import Metric
from edgefl.record.names import BASELINES
from edgefl.record.rounds import OWN
from edgefl.record.summary import SeedResult, read_run
from edgefl.record.tables import read_parquet
from edgefl.wording import counted, escape
from edgefl.yaml_file import read_yaml


def scatter(values: list[float], labels: int | None) -> float:
    """The standard deviation of one model's metric that seeds need not show.

    For an accuracy that of a share of ``labels``; without them that of its last changes between evaluations.

    >>> round(scatter([0.9, 0.9], 100), 3), scatter([1.0, 3.0, 1.0], None)
    (0.03, 1.414...)
    """
    if labels is not None and values:
        return math.sqrt(values[-1] * (1 - values[-1]) / labels)
    changes = np.diff(values[-6:])
    return float(np.sqrt(np.mean(changes**2) / 2)) if len(changes) else 0.0


class RunResult:
    """A finished run: its summary, scenario and rounds.

    Args:
        path: a run directory that ``edgefl simulate`` has finished.

    Attributes:
        path: the run directory.
        given: the folder given by the user; for a sweep's setting, the sweep's folder.
        summary: the contents of ``summary.json``.
        results: the same, typed: for each method's label one :class:`SeedResult` per seed.
        scenario: the contents of the fully resolved ``scenario.yaml``.
        unfinished: of a run in progress or interrupted, how much of it there is, in brief and as a sentence.
        setting: of a sweep's or a replay's result, the value of each path that it set.
    """

    setting: dict[str, Any] | None = None
    unfinished: tuple[str, str] | None = None

    def __init__(self, path: str | Path) -> None:
        self.path = self.given = user_path(path, argument="path")
        self.summary, typed = read_run(self.path)
        for each in typed.figures:
            declare(Quantity(**each))
        self.results: dict[str, tuple[SeedResult, ...]] = typed.methods
        self.scenario: dict[str, Any] = read_yaml(self.paths.scenario)

    def option(self, path: str) -> Any:
        """The value of the scenario at a dotted path; ``None`` if it has none."""
        return at(self.scenario, path)

    @property
    def fleet(self) -> list[dict[str, Any]]:
        """The groups of its fleet, as in the scenario."""
        return self.option("fleet") or []

    @property
    def paths(self) -> RunPaths:
        """The run directory's files."""
        return RunPaths(self.path)

    def of(self, label: str, seed: int) -> SeedPaths:
        """The files of one method and seed."""
        return self.paths.of(label, seed)

    @property
    def name(self) -> str:
        """The scenario's name."""
        return str(self.summary["scenario"])

    @property
    def names(self) -> tuple[str, str, str]:
        """Possible names, the shortest first: the scenario's name, the folder's name, the path."""
        return self.name, self.path.resolve().name, str(self.path)

    @property
    def labels(self) -> list[str]:
        """The methods' labels, in the scenario's order."""
        return list(self.results)

    @property
    def seeds(self) -> list[int]:
        """Every seed, in order of first appearance."""
        return list(dict.fromkeys(result.seed for results in self.results.values() for result in results))

    def of_seeds(self, seeds: Mapping[str, Collection[int]]) -> RunResult:
        """The same run; of each method only these seeds, if it has one of them."""
        found = copy(self)
        found.results = {k: tuple(e for e in v if e.seed in seeds.get(k, ())) or v for k, v in self.results.items()}
        for name in ("moments", "scatter", "rounds"):  # of all seeds
            vars(found).pop(name, None)
        return found

    @cached_property
    def baselines(self) -> list[str]:
        """The labels of its methods that take no part in the verdict."""
        return [label for label in self.results if self.entry(label).get("method") in BASELINES]

    @property
    def compared(self) -> list[str]:
        """The labels of the other methods; all if there are no others."""
        return [label for label in self.results if label not in self.baselines] or self.labels

    def entry(self, label: str) -> dict[str, Any]:
        """The method's entry in the scenario; empty if it has none."""
        return next((each for each in self.option("methods") or () if each["as"] == label), {})

    @cached_property
    def moments(self) -> dict[str, tuple[SeedResult, ...]]:
        """The results at the end of the last round within all budgets; if it continued without one, at its end."""
        every = self.results.items()
        found = {label: tuple(moment(e, self.columns_of(label, e.seed)) for e in results) for label, results in every}
        of = [found[label] for label in self.compared]
        continued = self.option("stop") == "rounds" and any(e.budgets for each in of for e in each)
        return self.results if continued and not any(all(e.rounds for e in each) for each in of) else found

    @cached_property
    def scatter(self) -> dict[str, float]:
        """By label the standard deviation of one model's metric that seeds need not show."""

        def of(label: str, result: SeedResult) -> float:
            values = self.columns_of(label, result.seed)["metric"]
            labels = result.metric.labels if self.metric.is_accuracy else None
            return scatter(values[np.isfinite(values)].tolist(), labels)

        return {label: max(of(label, each) for each in results) for label, results in self.results.items()}

    @property
    def trained(self) -> bool:
        """Whether any model was evaluated; false after ``--no-train``."""
        return any(result.metric.best is not None for results in self.results.values() for result in results)

    @property
    def metric(self) -> Metric:
        """The metric of the run's models."""
        return next(result.metric.metric for results in self.results.values() for result in results)

    @property
    def goals(self) -> list[float]:
        """The values of its targets, ascending."""
        return sorted({each.value for results in self.results.values() for one in results for each in one.targets})

    @property
    def budgets(self) -> list[tuple[str, float]]:
        """The kind and the limit of each of its budgets, in the scenario's order."""
        every = [each for results in self.results.values() for one in results for each in one.budgets]
        return list(dict.fromkeys((each.kind, each.limit) for each in every))

    @property
    def smoothed(self) -> bool:
        """Whether targets refer to the metric's moving average."""
        return str(self.option("target_metric")).endswith("_ema")

    @property
    def aim(self) -> str:
        """The column to which the scenario's targets refer: ``metric`` or ``metric_ema``."""
        return "metric_ema" if self.smoothed else "metric"

    def rounds_of(self, label: str, seed: int) -> pa.Table:
        """The rounds of one method and seed, as in its ``rounds.parquet``."""
        self.check_labels([label])
        seeds = [result.seed for result in self.results[label]]
        if seed not in seeds:
            found = ", ".join(map(str, seeds))
            raise UserError(f"no seed {seed} of '{label}' in this run, found {found}", file=str(self.path))
        return read_parquet(self.of(label, seed).rounds, OWN)

    def columns_of(self, label: str, seed: int) -> dict[str, Floats]:
        """The columns of the same table; NaN where one has no value."""
        table = self.rounds_of(label, seed)
        return {name: table[name].to_numpy().astype(np.float64) for name in table.column_names}

    def check_labels(self, labels: Iterable[str]) -> None:
        """Refuse labels that no method of the run has."""
        for label in labels:
            if label not in self.results:
                raise UserError(f"no method '{label}' in this run; {nearest(label, self.labels)}", file=str(self.path))

    @cached_property
    def rounds(self) -> pa.Table:
        """Every round of every method and seed, with ``label`` and ``seed`` as first columns."""
        tables = []
        for label, seed in [(label, result.seed) for label, results in self.results.items() for result in results]:
            table = self.rounds_of(label, seed)
            table = table.add_column(0, "label", pa.array([label] * len(table), pa.string()))
            tables.append(table.add_column(1, "seed", pa.array([seed] * len(table), pa.int64())))
        return pa.concat_tables(tables, promote_options="permissive")

    def __repr__(self) -> str:
        return escape(
            f"{type(self).__name__}({str(self.path)!r}: {', '.join(self.labels)}; {counted(len(self.seeds), 'seed')})"
        )
