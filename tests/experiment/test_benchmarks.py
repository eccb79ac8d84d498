"""The benchmark measures what it says; how fast anything is belongs to no test."""

from __future__ import annotations

import pytest
import torch

from edgefl.errors import UserError
from edgefl.experiment.benchmarks.cases import CASES
from edgefl.experiment.benchmarks.outside import share_outside
from edgefl.experiment.benchmarks.training import (
    SAME,
    WHOLE,
    bench_engines,
    bench_methods,
    in_turn,
    known_case,
    known_engines,
)
from edgefl.learning.engine.choice import engines_on

CPU = torch.device("cpu")


def test_contenders_take_turns_and_the_first_turns_do_not_count():
    order = []
    times, memory = in_turn({name: lambda name=name: order.append(name) for name in "ab"}, 2, CPU)
    assert order == ["a", "b"] * 3
    assert {name: len(seconds) for name, seconds in times.items()} == {"a": 2, "b": 2}
    assert all(size > 0 for size in memory.values())


def test_every_engine_is_compared_with_both_kinds_of_centralised_training():
    result = bench_engines(CASES["cnn"].quick(), CPU)
    rows = {row["name"]: row for row in result["rows"]}
    assert set(rows) == {*engines_on(CPU), SAME, WHOLE}
    assert rows[SAME]["to_centralised_same_batch"] == rows[WHOLE]["to_centralised_cohorts_batch"] == 1
    both = rows["sequential"]["images_per_second"], rows["sequential"]["local_steps_per_second"]
    assert both[0] == pytest.approx(10 * both[1])
    assert rows[SAME]["local_steps_per_second"] is None


def test_methods_are_compared_where_they_can_train_the_model():
    rows = bench_methods(CASES["cnn"].quick(), CPU, ["moon", "stochdepth", "fedadc"], "sequential")
    assert [row["method"] for row in rows] == ["moon", "fedadc"]
    assert rows[0]["by_flops"] > 1.5
    assert all(row["measured"] > 0 for row in rows)


def test_the_public_configuration_is_375_000_local_steps():
    case = CASES["pfl-cifar10"]
    assert case.local_steps * case.rounds == 375_000
    assert case.batch * case.steps == 50


def test_the_time_outside_training_is_a_share_of_the_whole(small):
    found = share_outside(small(training__rounds=2), "fedavg")
    assert 0 < found["working_seconds"] < found["seconds"]
    assert found["share_outside"] == pytest.approx(1 - found["working_seconds"] / found["seconds"])


def test_unknown_cases_and_engines_are_refused_with_the_nearest_name():
    with pytest.raises(UserError, match="unknown case 'cn'; did you mean 'cnn'"):
        known_case("cn")
    with pytest.raises(UserError, match="did you mean 'parallel'"):
        known_engines(["paralel"], CPU)
