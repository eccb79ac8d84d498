"""Run directories made by the contract of the run directory, with figures that a test chooses."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ruamel.yaml import YAML

from edgefl.record.metric import ACCURACY
from edgefl.record.summary import SCHEMA
from edgefl.report import RunResult

ROUNDS = 40
NOTHING: dict[str, Any] = {"inputs": {}, "software": {}, "chosen": []}
BUDGETS = {"seconds": 60.0, "bytes": 500e6, "joules": 5000.0}


def seed_result(seed: int = 0, **changes: Any) -> dict[str, Any]:
    """One method's object for one seed, as summary.json holds it."""
    result: dict[str, Any] = {
        "seed": seed,
        "stop": {"reason": "rounds", "round": ROUNDS},
        "accuracy": {"final": 0.9, "best": 0.91, "ema": 0.89},
        "seconds": 50.0,
        "rounds": ROUNDS,
        "rounds_without_update": 0,
        "refused": 0,
        "client_bytes": 9_000_000,
        "flops": 1e12,
        "joules": 4000.0,
        "bytes": {"down": 200_000_000, "up": 210_000_000, "useful": 400_000_000, "wasted": 10_000_000},
        "communication": {"exposed_seconds": 12.0, "hidden_seconds": 3.0},
        "targets": [],
        "budgets": [],
    }
    for path, value in changes.items():
        inner = result
        *above, last = path.split("__")
        for name in above:
            inner = inner[name]
        inner[last] = value
    return result


def target(accuracy: float, seconds: float | None) -> dict[str, Any]:
    spent = None if seconds is None else 1
    others = dict.fromkeys(("bytes", "rounds", "flops", "joules"), spent)
    return {"accuracy": accuracy, "reached": seconds is not None, "seconds": seconds, **others}


def rounds_table(result: Mapping[str, Any], speed: float, trained: bool) -> pa.Table:
    """Rounds whose sums are the summary's figures, and whose last model has its metric."""
    rounds = int(result["rounds"])
    numbers = np.arange(1, rounds + 1)
    found = result.get("metric", result["accuracy"])
    of_accuracy = found.get("name", ACCURACY.name) == ACCURACY.name
    final = found["final"] if found["final"] is not None else 0.9
    random = np.random.default_rng(result["seed"])
    values = final - 0.8 * np.exp(-numbers / (8 * speed)) + random.normal(0, 0.006, rounds)
    if not trained or found["final"] is None:
        values = np.full(rounds, np.nan)
    elif rounds:
        values[-1] = final
    ema = values.copy()
    if trained and rounds and found.get("ema") is not None:
        ema[-1] = found["ema"]
    metric, smooth = (pa.array(each, pa.float64(), from_pandas=True) for each in (values, ema))
    nothing, idle = pa.nulls(rounds, pa.float64()), result["rounds_without_update"]
    down, up = ([result["bytes"][way] // max(1, rounds)] * rounds for way in ("down", "up"))
    each = {name: result[name] / max(1, rounds) for name in ("seconds", "flops", "joules")}
    blocks = result.get("blocks") or {}
    return pa.table(
        {
            "round": pa.array(numbers, pa.int64()),
            "seconds": each["seconds"] * numbers,
            "accuracy": metric if of_accuracy else nothing,
            "accuracy_ema": smooth if of_accuracy else nothing,
            "metric": metric,
            "metric_ema": smooth,
            "draw": pa.array([0] * rounds, pa.int32()),
            "loss": 1 - values,
            "bytes_down": pa.array(down, pa.int64()),
            "bytes_up": pa.array(up, pa.int64()),
            "flops": np.full(rounds, each["flops"]),
            "joules": np.full(rounds, each["joules"]),
            "participants": pa.array([10] * rounds, pa.int64()),
            "aggregated": pa.array([0] * idle + [10] * (rounds - idle), pa.int64()),
            "accuracy_ensemble": nothing,
            "metric_ensemble": nothing,
            "refused": pa.array([result["refused"]] + [0] * (rounds - 1) if rounds else [], pa.int64()),
            **{
                f"blocks_{name}": pa.array([blocks.get(name, 0)] + [0] * (rounds - 1) if rounds else [], pa.int64())
                for name in ("actual", "uniform")
            },
            "critical_client": pa.array([result.get("critical_client", 0)] * rounds, pa.int64()),
            "staleness": np.zeros(rounds),
            **{
                name: np.full(rounds, result["communication"][name] / max(1, rounds))
                for name in ("exposed_seconds", "hidden_seconds")
            },
            "ratio_to_optimum": pa.array([result.get("ratio_to_optimum")] * rounds, pa.float64()),
        }
    )


def with_metric(result: Mapping[str, Any]) -> dict[str, Any]:
    """The same result, whose metric is the accuracy unless it has another."""
    if "metric" in result or not isinstance(result.get("accuracy"), dict):
        return dict(result)
    targets = [{"metric": ACCURACY.name, "value": each.get("accuracy"), **each} for each in result["targets"]]
    budgets = [{"metric": each["accuracy"], **each} for each in result["budgets"]]
    metric = {**ACCURACY._asdict(), "title": ACCURACY.word, **result["accuracy"]}
    return {**result, "metric": metric, "targets": targets, "budgets": budgets}


MakeRun = Callable[..., RunResult]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Writes a run directory from the seeds' objects, with rounds that fit them."""

    def make(
        methods: Mapping[str, Sequence[Mapping[str, Any]]],
        /,
        folder: str = "run",
        name: str = "three methods",
        trained: bool = True,
        **scenario: Any,
    ) -> RunResult:
        path = tmp_path / folder
        path.mkdir()
        methods = {label: [with_metric(each) for each in results] for label, results in methods.items()}
        summary = {"schema": SCHEMA, "scenario": name, "edgefl": "0.1.0", **NOTHING, "methods": methods}
        (path / "summary.json").write_text(json.dumps(summary))
        with (path / "scenario.yaml").open("w") as file:
            YAML(typ="safe").dump({"name": name, **scenario}, file)
        for number, (label, results) in enumerate(methods.items()):
            for result in results:
                inner = path / label / f"seed-{result['seed']}"
                inner.mkdir(parents=True)
                table = rounds_table(result, 1.0 - 0.12 * number, trained)
                pq.write_table(table, inner / "rounds.parquet")
        return RunResult(path)

    return make


@pytest.fixture
def three_methods(make_run: MakeRun) -> RunResult:
    """Three methods and three seeds, targets and budgets, one of them with a partial downlink."""
    methods: dict[str, list[dict[str, Any]]] = {"fedavg": [], "fedbr": [], "fedadc+overlap": []}
    times = {"fedavg": (31.0, 33.0, 34.0), "fedbr": (25.0, 25.5, None), "fedadc+overlap": (20.0, 22.0, 21.0)}
    for number, label in enumerate(methods):
        for seed in range(3):
            result = seed_result(
                seed,
                accuracy__final=0.95 - 0.01 * number + 0.002 * seed,
                accuracy__best=0.955 - 0.01 * number + 0.002 * seed,
                seconds=50.0 + number + seed,
                rounds=ROUNDS - 3 * number,
                joules=4400.0 - 500 * number + 11 * seed,
                bytes__down=200_000_000 - 40_000_000 * (label == "fedbr"),
                stop={"reason": ["joules", "bytes", "seconds"][number], "round": ROUNDS},
                targets=[target(0.8, 10.0 + number + seed / 4), target(0.9, times[label][seed])],
                budgets=[{"kind": kind, "limit": amount, "accuracy": None} for kind, amount in BUDGETS.items()],
            )
            if label == "fedbr":
                result["blocks"] = {"actual": 160_000_000, "uniform": 150_000_000}
            methods[label].append(result)
    return make_run(methods, stop="budget", targets=[0.8, 0.9], budgets=BUDGETS, target_metric="accuracy")


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """A run of edgefl itself: three methods and two seeds on eight clients, with prefetches and chosen blocks."""
    from edgefl import simulate

    return simulate(
        "5g_100clients",
        out=tmp_path_factory.mktemp("runs") / "small",
        overrides={
            "name": "small",
            "seeds": [0, 1],
            "data": {"name": "synthetic", "clients": 8, "shape": [1, 8, 8], "classes": 4, "train": 320, "test": 80},
            "training.rounds": 6,
            "training.cohort": 3,
            "targets": [0.3],
            "budgets": {},
            "stop": "rounds",
            "methods": [
                "fedavg",
                {"method": "fedadc", "overlap": True},
                {"method": "fedbr", "scheduler": {"kind": "gmbs"}},
            ],
        },
    )


@pytest.fixture(scope="session")
def late_run(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """Nothing is trained, and a deadline cuts slow clients off, so that bytes are wasted."""
    from edgefl import simulate

    return simulate(
        "5g_100clients",
        out=tmp_path_factory.mktemp("runs") / "late",
        overrides={
            "seeds": [0],
            "training.rounds": 6,
            "protocol": {"kind": "synchronous", "deadline": "0.18 s"},
            "stop": "rounds",
            "methods": ["fedavg", {"method": "fedadc", "overlap": True}],
        },
        train=False,
    )


@pytest.fixture(scope="session")
def other_protocols(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunResult]:
    """Nothing is trained: cells that average, and asynchronous aggregation, whose rounds begin before their clients."""
    from edgefl import simulate

    folder = tmp_path_factory.mktemp("runs")
    common = {"seeds": [0], "training.rounds": 5, "stop": "rounds", "methods": ["fedavg"]}
    rates = {"down": "200 Mbit/s", "up": "200 Mbit/s"}
    special = {
        "cells": {
            "protocol": {"kind": "hierarchical"},
            "network.topology": {"kind": "cells", "cells": 4, "server": rates, "backhaul": rates, "latency": "20 ms"},
        },
        "asynchronous": {"protocol": {"kind": "asynchronous", "buffer": 4, "concurrency": 10}},
    }
    return {
        name: simulate("5g_100clients", out=folder / name, overrides={**common, **changes}, train=False)
        for name, changes in special.items()
    }
