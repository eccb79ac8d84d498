"""Runs in which clients train parts of the model: their bytes by hand."""

from __future__ import annotations

import json

import pytest

from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.experiment.step_costs import recorded_cost
from edgefl.record.costs import read_costs
from edgefl.rerun.verify import verify
from edgefl.scenario import load_scenario
from edgefl.yaml_file import dump_yaml

from ..small_runs import LEVELS, SMALL, replay

CHANGES = {key.replace("__", "."): value for key, value in LEVELS.items()}


def parameters(share: float, shape: int = 8) -> int:
    """Those of the model cnn of width 2 on grey images of 8 by 8 and four classes, by hand."""
    one, two, three = (max(1, int(share * each)) for each in (2, 4, 8))
    flat = two * (shape // 4) ** 2
    return (9 + 1) * one + (9 * one + 1) * two + (flat + 1) * three + (three + 1) * 4


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("levels")
    (folder / "small.yaml").write_text(dump_yaml(SMALL), encoding="utf-8")
    return run(load_scenario(folder / "small.yaml", CHANGES), out=folder / "run")


@pytest.mark.full
def test_a_run_passes_verification_and_its_bytes_are_those_by_hand(finished):
    assert verify(finished) == []
    for label, entries in json.loads((finished / "summary.json").read_text())["methods"].items():
        steps = read_costs(finished / "costs.json")[label]
        assert {step.level for step in steps} == {0, 1}
        assert {recorded_cost(step).training_flops for step in steps}
        whole, half = 4 * parameters(1.0), 4 * parameters(0.5)
        if label == "depthfl":
            # Two more classifiers of maps of 4 by 4 and 2 by 2, or the first convolution and its classifier: half of
            # three blocks is one.
            first = (16 * 2 + 1) * 4
            whole, half = whole + 4 * (first + (4 * 4 + 1) * 4), 4 * ((9 + 1) * 2 + first)
        up = entries[0]["bytes"]["up"]
        # Four rounds of three clients.
        assert up in {whole * count + half * (12 - count) for count in range(13)}
        assert half * 12 < up < whole * 12


@pytest.mark.full
def test_a_replay_with_other_levels_is_refused_where_they_train_in_the_first_round(finished, tmp_path):
    with pytest.raises(UserError, match=r"no round of the replay ends: .*would train differently in round 1"):
        replay(finished, {"fleet.0.capacity": 1.0}, tmp_path / "other")
