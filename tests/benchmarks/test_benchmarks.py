"""The benchmarks run and compare what they say; how fast anything is belongs to no test."""

from __future__ import annotations

import pytest
import torch

from edgefl.benchmarks.cases import CASES
from edgefl.benchmarks.outside import share_outside
from edgefl.benchmarks.training import SAME, WHOLE, bench_engines, bench_methods, known_case, known_engines
from edgefl.errors import UserError
from edgefl.training.choice import engines_on

pytestmark = pytest.mark.full
CPU = torch.device("cpu")


def test_engines_and_methods_are_compared_with_centralised_training(small):
    rows = {row["name"]: row for row in bench_engines(CASES["cnn"].quick(), CPU)["rows"]}
    assert set(rows) == {*engines_on(CPU), SAME, WHOLE}
    assert rows[SAME]["to_centralised_same_batch"] == rows[WHOLE]["to_centralised_cohorts_batch"] == 1
    both = rows["sequential"]["images_per_second"], rows["sequential"]["local_steps_per_second"]
    assert both[0] == pytest.approx(10 * both[1])

    methods = bench_methods(CASES["cnn"].quick(), CPU, ["moon", "stochdepth", "fedadc"], "sequential", None)
    assert [row["method"] for row in methods] == ["moon", "fedadc"]
    assert methods[0]["by_flops"] > 1.5
    assert all(row["measured"] > 0 for row in methods)

    rows = share_outside(small(training__rounds=2, methods=["fedavg", "fedprox"]))
    assert [(row["method"], row["rounds"]) for row in rows] == [("fedavg", 2), ("fedprox", 2), ("all", 4)]
    for row in rows:
        assert 0 < row["working_seconds"] < row["seconds"]
        assert row["share_outside"] == pytest.approx(1 - row["working_seconds"] / row["seconds"])

    with pytest.raises(UserError, match="unknown case 'cn'; did you mean 'cnn'"):
        known_case("cn")
    with pytest.raises(UserError, match="did you mean 'parallel'"):
        known_engines(["paralel"], CPU)
