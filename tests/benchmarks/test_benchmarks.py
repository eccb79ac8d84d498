"""The benchmark measures what it says; how fast anything is belongs to no test."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise, permutations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from edgefl.benchmarks import training
from edgefl.benchmarks.cases import CASES
from edgefl.benchmarks.contenders import centralised
from edgefl.benchmarks.outside import Watched, share_outside
from edgefl.benchmarks.peak_memory import peak_bytes, reset_peak, resident_bytes
from edgefl.benchmarks.prediction import _planned
from edgefl.benchmarks.training import (
    SAME,
    WHOLE,
    bench_engines,
    bench_methods,
    in_turn,
    known_case,
    known_engines,
    known_precisions,
    orders,
)
from edgefl.cost.measure import trace
from edgefl.errors import UserError
from edgefl.methods.build import build_method
from edgefl.methods.local_options import LocalOptions
from edgefl.models.registry import MODELS, build_model
from edgefl.training.base import delivered, ignored
from edgefl.training.choice import engines_on

CPU = torch.device("cpu")


def test_contenders_take_turns_and_the_first_turns_do_not_count():
    order = []
    times, memory = in_turn({name: lambda name=name: order.append(name) for name in "ab"}, 2, CPU)
    assert order == ["a", "b", "a", "b", "b", "a"]
    assert {name: len(seconds) for name, seconds in times.items()} == {"a": 2, "b": 2}
    assert all(size > 0 for size in memory.values())


@pytest.mark.parametrize("count", range(1, 9))
def test_each_contender_follows_each_other_one_equally_often(count):
    rows = orders(count)
    assert all(sorted(order) == list(range(count)) for order in rows)
    followed = Counter(pair for order in rows for pair in pairwise(order))
    assert set(followed) == set(permutations(range(count), 2))
    assert len(set(followed.values())) <= 1


def test_every_engine_is_compared_with_both_kinds_of_centralised_training():
    result = bench_engines(CASES["cnn"].quick(), CPU)
    rows = {row["name"]: row for row in result["rows"]}
    assert set(rows) == {*engines_on(CPU), SAME, WHOLE}
    assert rows[SAME]["to_centralised_same_batch"] == rows[WHOLE]["to_centralised_cohorts_batch"] == 1
    both = rows["sequential"]["images_per_second"], rows["sequential"]["local_steps_per_second"]
    assert both[0] == pytest.approx(10 * both[1])
    assert rows[SAME]["local_steps_per_second"] is None


def test_each_precision_is_compared_with_centralised_training_in_the_same_one(monkeypatch):
    seconds = {
        ("sequential", "float32"): 6.0, (SAME, "float32"): 3.0, (WHOLE, "float32"): 2.0,
        ("sequential", "bfloat16"): 1.5, (SAME, "bfloat16"): 1.2, (WHOLE, "bfloat16"): 0.9,
    }  # fmt: skip

    def timed(turns, *_, **__):
        for turn in turns.values():
            turn()
        return {name: [seconds[name]] * 2 for name in turns}, dict.fromkeys(turns, 1)

    monkeypatch.setattr(training, "in_turn", timed)
    result = bench_engines(CASES["cnn"].quick(), CPU, ["sequential"], ["float32", "bfloat16"])
    rows = {(row["name"], row["precision"]): row for row in result["rows"]}
    assert set(rows) == set(seconds)
    for (name, precision), row in rows.items():
        own = seconds[name, precision]
        assert row["to_centralised_same_batch"] == pytest.approx(seconds[SAME, precision] / own)
        assert row["to_centralised_cohorts_batch"] == pytest.approx(seconds[WHOLE, precision] / own)
        assert row["to_float32"] == pytest.approx(seconds[name, "float32"] / own)


def test_centralised_training_has_the_precision_of_the_engines(monkeypatch):
    seen = []
    case = CASES["cnn"].quick()
    data, local = training._data(case, CPU), training._local(case)
    model = build_model(MODELS["cnn"](), case.shape, 10)

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            if "convolution" in str(function):
                seen.append(arguments[0].dtype)
            return function(*arguments, **(options or {}))

    for precision in ("float32", "bfloat16"):
        turn = centralised(case, data, model, build_method("fedavg", local), case.batch, precision)
        with Watching():
            turn()
        assert set(seen) == {getattr(torch, precision)}
        seen.clear()


def test_methods_are_compared_where_they_can_train_the_model():
    rows = bench_methods(CASES["cnn"].quick(), CPU, ["moon", "stochdepth", "fedadc"], "sequential", None)
    assert [row["method"] for row in rows] == ["moon", "fedadc"]
    assert rows[0]["by_flops"] > 1.5
    assert all(row["measured"] > 0 for row in rows)
    assert {row["predicted"] for row in rows} == {row["reason"] for row in rows} == {None}


def test_a_ratio_is_predicted_by_what_is_executed_and_a_miss_gets_a_reason():
    def by_bytes(operators):
        return sum(each.bytes * each.count for each in operators) / 1e9

    (row,) = bench_methods(CASES["cnn"].quick(), CPU, ["moon"], "sequential", by_bytes)
    assert row["predicted"] == pytest.approx(row["by_bytes"])
    assert row["off"] == pytest.approx(row["measured"] / row["predicted"] - 1)
    (far,) = bench_methods(CASES["cnn"].quick(), CPU, ["moon"], "sequential", lambda operators: 2.0 ** len(operators))
    assert "fedavg's, predicted" in far["reason"]


def test_the_parts_of_a_step_add_up_to_the_step():
    model = build_model(MODELS["cnn"](width=2), (1, 8, 8), 4)
    for name in ("fedavg", "moon", "fedadc"):
        method = build_method(name, LocalOptions(batch=4))
        adapted = method.objective.adapt(model)
        whole = trace(adapted, method, adapted.depth, 4).cost()
        parts = _planned(method, model, 4)
        assert set(parts) == {"forward", "backward", "update"}
        assert sum(each.flops * each.count for part in parts.values() for each in part) == whole.training_flops


def test_a_peak_is_one_works_own_where_the_system_can_tell():
    reset_peak(CPU)
    before = peak_bytes(CPU)
    block = torch.ones(50_000_000)
    assert peak_bytes(CPU) - before > 150e6
    assert resident_bytes() >= 4 * len(block)


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not say what its processes hold")
def test_a_peak_holds_what_processes_that_this_one_began_hold_for_themselves():
    source = "held = bytearray(80_000_000); print(flush=True); input()"
    before = peak_bytes(CPU)
    with subprocess.Popen([sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert 70e6 < peak_bytes(CPU) - before < 300e6
        process.stdin.close()
    assert peak_bytes(CPU) - before < 40e6


def test_turns_before_the_first_take_as_long_as_is_asked(monkeypatch):
    seconds = iter(range(1000))
    monkeypatch.setattr(training, "perf_counter", lambda: next(seconds))
    order = []
    # The clock moves by a second whenever it is read: once for the beginning, and once after each turn.
    in_turn({"a": lambda: order.append("a")}, 3, CPU, clock=lambda: 0.0, warm_up=10)
    assert len(order) == 10 + 3


def test_the_public_configuration_is_375_000_local_steps():
    case = CASES["pfl-cifar10"]
    assert case.local_steps * case.rounds == 375_000
    assert case.batch * case.steps == 50


def test_the_time_outside_training_is_a_share_of_the_whole(small):
    methods = [{"method": "fedavg", "as": "all"}, "fedprox"]
    rows = share_outside(small(training__rounds=2, methods=methods, seeds=[0, 1]))
    assert [row["method"] for row in rows] == ["all", "fedprox", "all"]
    for row in rows:
        assert 0 < row["working_seconds"] < row["seconds"]
        assert row["share_outside"] == pytest.approx(1 - row["working_seconds"] / row["seconds"])
    # What the methods share is made once.
    assert rows[0]["seconds"] + rows[1]["seconds"] < rows[2]["seconds"]
    assert rows[2]["working_seconds"] == pytest.approx(rows[0]["working_seconds"] + rows[1]["working_seconds"])
    assert [row["rounds"] for row in rows] == [4, 4, 8]


class Slow:
    """An engine whose every job takes 20 ms of the caller's time."""

    def train(self, tasks, arrived=ignored):
        time.sleep(0.02 * len(tasks))
        return delivered([None] * len(tasks), arrived)

    def evaluate(self, vector, mode):
        time.sleep(0.02)


def test_what_the_caller_does_while_nobody_works_is_not_called_training():
    seconds = [0.0]
    watched = Watched(Slow(), seconds)
    for _ in range(3):
        time.sleep(0.2)
        watched.train([None, None], lambda place, result: time.sleep(0.2))
        watched.evaluate(None, {})
    assert 0.18 <= seconds[0] < 0.36


def test_what_the_caller_does_with_results_while_others_train_is_training_but_for_the_last():
    seconds = [0.0]
    watched = Watched(Slow(), seconds, overlaps=True)
    watched.train([None, None, None], lambda place, result: time.sleep(0.2))
    assert 0.46 <= seconds[0] < 0.6


def test_unknown_cases_and_engines_are_refused_with_the_nearest_name():
    with pytest.raises(UserError, match="unknown case 'cn'; did you mean 'cnn'"):
        known_case("cn")
    with pytest.raises(UserError, match="did you mean 'parallel'"):
        known_engines(["paralel"], CPU)
    with pytest.raises(UserError, match="did you mean 'bfloat16'"):
        known_precisions(["bfloat"], CPU)
    with pytest.raises(UserError, match="tf32 is a precision of CUDA devices"):
        known_precisions(["tf32"], CPU)


def test_a_build_without_onednn_has_no_products_in_bfloat16(monkeypatch):
    """There, PyTorch does not even have the operator that says so."""
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    monkeypatch.setattr(torch.ops, "mkldnn", None)
    assert training.precisions_on(CPU) == ("float32",)
