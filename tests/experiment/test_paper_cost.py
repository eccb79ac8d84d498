"""FedBR's own cost model: Eq. 3 for steps, S/M bytes for each block."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

from edgefl.experiment import run
from edgefl.experiment.wiring import step_costs
from edgefl.rerun.finished_run import FinishedRun
from edgefl.rerun.verify import verify

METHODS = ["fedavg", "fedbr", "fedmlb"]


def paper_flops(scenario, alpha, batch):
    return {label: each.step(alpha, batch).training_flops for label, each in step_costs(scenario, METHODS).items()}


@pytest.mark.full
def test_a_finished_run_measures_what_it_does_not_hold_by_the_scenarios_cost(small, tmp_path):
    scenario = small(cost={"kind": "paper"}, methods=METHODS, training__rounds=2)
    finished = FinishedRun(run(scenario, out=tmp_path / "run", train=False))
    new = 7  # no client has so many images in a batch
    assert all((4, new) not in each._known for each in finished.costs.values())
    found = {label: each.step(4, new).training_flops for label, each in finished.costs.items()}
    assert found == paper_flops(scenario, 4, new)
    assert found["fedmlb"] == pytest.approx(2.5 * found["fedavg"], rel=1e-12)


def test_steps_cost_by_equation_3_and_blocks_are_equal(small, tmp_path):
    settings = {"cost": {"kind": "paper"}, "methods": ["fedavg", "fedbr", "fedmlb", "moon"], "training__rounds": 6}
    folder = run(small(**settings), out=tmp_path / "run", train=False)
    assert verify(folder) == []
    costs = json.loads((folder / "costs.json").read_text())
    flops = {
        method: {(entry["alpha"], entry["batch"]): entry["training_flops"] for entry in entries}
        for method, entries in costs.items()
    }
    # M = 4: FedMLB has three hybrid paths, 1 + 3 * 4 / 8; MOON has none.
    for (alpha, batch), found in flops["fedbr"].items():
        paths = min(alpha, 3)
        assert found == pytest.approx(flops["fedavg"][4, batch] * (1 + paths * (paths + 1) / 8), rel=1e-12)
    assert flops["fedmlb"][4, 16] == pytest.approx(2.5 * flops["fedavg"][4, 16], rel=1e-12)
    assert sorted(flops["moon"].values()) == sorted(flops["fedavg"].values())
    rounds = pq.read_table(folder / "fedbr" / "seed-0" / "rounds.parquet")
    assert rounds.column("blocks_actual") == rounds.column("blocks_uniform")
