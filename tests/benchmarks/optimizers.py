"""Do Adam and AdamW pay on these devices? Three scenarios in three local optimizers: a table for docs/results.md.

``EDGEFL_DATA=… python tests/benchmarks/optimizers.py FOLDER [SCENARIO…]``; runs in the folder are not repeated.
The rate of each optimizer is the best of five on the validation split of a seed of its own; the rest is the scenario's.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgefl import load_scenario, simulate
from edgefl.planning.planning import plan
from edgefl.report import RunResult
from edgefl.report.quantities import quantity
from edgefl.report.statistics import mean_interval

SCENARIOS = ("lte_shakespeare_lora", "vit_digits", "clinics_diabetes")
RATES = {
    "sgd": (0.01, 0.03, 0.1, 0.3, 1.0),
    "adam": (0.0003, 0.001, 0.003, 0.01, 0.03),
    "adamw": (0.0003, 0.001, 0.003, 0.01, 0.03),
}
SEEDS, TUNING_SEED = [0, 1, 2], 100


def method(optimizer: str, rate: float, label: str) -> dict[str, Any]:
    """FedAvg with an optimizer; SGD has the scenario's momentum, AdamW torch's weight decay."""
    own = {"sgd": {}, "adam": {"momentum": 0}, "adamw": {"momentum": 0, "weight_decay": 0.01}}[optimizer]
    return {"method": "fedavg", "as": label, "local": {"optimizer": optimizer, "lr": rate, **own}}


def made(name: str, folder: Path, changes: Mapping[str, Any]) -> RunResult:
    """The run of a shipped scenario with changes, which may exist."""
    return RunResult(folder) if (folder / "summary.json").exists() else simulate(name, out=folder, overrides=changes)


def tuned(name: str, folder: Path) -> dict[str, float]:
    """The rate of each optimizer."""
    entries = {f"{each}-{rate:g}": (each, rate) for each, rates in RATES.items() for rate in rates}
    methods = [method(*entry, label) for label, entry in entries.items()]
    changes = {"methods": methods, "seeds": [TUNING_SEED], "evaluation.split": "validation", "targets": []}
    run = made(name, folder, changes)
    worst = -math.inf if run.metric.better == "higher" else math.inf

    def final(label: str) -> float:
        found = run.results[label][0].metric.final
        return worst if found is None or not math.isfinite(found) else found

    best = max if run.metric.better == "higher" else min
    return {each: best(rates, key=lambda rate, each=each: final(f"{each}-{rate:g}")) for each, rates in RATES.items()}


def at(run: RunResult, label: str, seed: int, column: str, limit: float) -> float:
    """The last metric of a run before a limit of the seconds or the joules."""
    rounds = run.rounds_of(label, seed).to_pydict()
    rows = zip(rounds[column], rounds["metric"], strict=True)
    return [metric for spent, metric in rows if metric is not None and spent <= limit * (1 + 1e-9)][-1]


def total(run: RunResult, label: str, column: str) -> float:
    """The least sum of a seed."""
    return min(getattr(each, column) for each in run.results[label])


def rows(name: str, folder: Path) -> list[list[str]]:
    """A row of the table for each optimizer."""
    rates = tuned(name, folder / f"{name}-tuning")
    methods = [method(each, rate, each) for each, rate in rates.items()]
    run = made(name, folder / name, {"methods": methods, "seeds": SEEDS, "targets": []})
    plans = {each.label: each.devices for each in plan(load_scenario(name, {"methods": methods})).methods}
    limits = {column: min(total(run, label, column) for label in rates) for column in ("seconds", "joules")}

    def mean(values: Sequence[float]) -> str:
        found = mean_interval(values)
        return f"{found.mean:.4g} ± {found.half_width:.2g}"

    return [
        [
            name,
            f"`{label}`",
            f"{rate:g}",
            *(mean([at(run, label, seed, kind, limit) for seed in SEEDS]) for kind, limit in limits.items()),
            mean([at(run, label, seed, "seconds", math.inf) for seed in SEEDS]),
            quantity(max(each.peak_memory_bytes for each in plans[label]), "bytes"),
            str(sum(each.refused for each in plans[label])),
        ]
        for label, rate in rates.items()
    ]


def main(folder: str, *names: str) -> None:
    """Print the table."""
    heads = ["scenario", "optimizer", "rate", "at equal seconds", "at equal joules", "at the end", "memory", "refused"]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name in names or SCENARIOS:
        for row in rows(name, Path(folder)):
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
