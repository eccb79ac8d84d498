"""Every kind of budget, at every limit, under every way to stop: each view of the run can be made."""

from __future__ import annotations

import json

import pytest

from edgefl.experiment import run
from edgefl.report import RunResult, comparison, verdict, write_pictures
from edgefl.report.page.write import write_page
from edgefl.rerun.verify import verify
from edgefl.scenario.loading import check
from edgefl.simulation.accounts import BudgetSpec

from ..small_runs import SMALL

KINDS = tuple(BudgetSpec.model_fields)
STOPS = ("budget", "target", "rounds")
LIMITS = {"below the first round": 1e-6, "after some rounds": 0.5, "never reached": 10.0}
"""Shares of what the whole run spends."""
ROUNDS = 4


def scenario(**changes):
    data = json.loads(json.dumps(SMALL))
    data["training"]["rounds"] = ROUNDS
    return check({**data, "methods": ["fedavg", "fedbr"], **changes})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run without budgets, of which the limits are shares."""
    return RunResult(run(scenario(), out=tmp_path_factory.mktemp("budgets") / "run", train=False))


@pytest.mark.parametrize(
    ("share", "stop", "evaluated"),
    [
        pytest.param("after some rounds", "rounds", 3, marks=pytest.mark.full),
        pytest.param("never reached", "target", 1, marks=pytest.mark.full),
        pytest.param("after some rounds", "budget", 1, marks=pytest.mark.full),
    ],
)
def test_every_view_of_every_budget_can_be_made(whole, tmp_path, share, stop, evaluated):
    spent = {kind: whole.results["fedavg"][0].spent(kind) for kind in KINDS}
    assert all(spent.values())
    limits = {kind: amount * LIMITS[share] for kind, amount in spent.items()}
    # Without a stop by budget, all of them are looked at in one run.
    for budgets in [{kind: limit} for kind, limit in limits.items()] if stop == "budget" else [limits]:
        train = stop != "budget" or "client_bytes" in budgets
        chosen = scenario(budgets=budgets, stop=stop, targets=[0.99], evaluation={"every": evaluated})
        folder = run(chosen, out=tmp_path / "-".join(budgets), train=train, engine="sequential")
        assert verify(folder) == []
        result = RunResult(folder)
        for table in (comparison(result), comparison(result, detailed=True)):
            assert all([verdict(result), table.text(80), table.csv(), table.latex(), table.markdown(), table.json()])
        write_page([result], tmp_path / "page.html")
        if not train:
            continue
        for entry in (result.results["fedavg"][0], result.results["fedbr"][0]):
            for budget in entry.budgets:
                held = entry.within(budget)
                within = entry.spent(budget.kind) <= budget.limit
                assert held in ({budget.accuracy, entry.accuracy.final} if within else {budget.accuracy})
                assert within or share != "never reached"
                assert held is not None or not within
    if stop == "rounds":
        write_pictures(result)


def test_a_budget_on_a_clients_bytes_below_the_first_round_leaves_nothing_to_compare(tmp_path):
    budgets = {"client_bytes": 1.0}
    folder = run(scenario(budgets=budgets, stop="rounds", methods=["fedavg"]), out=tmp_path / "run")
    assert (
        verdict(RunResult(folder)).splitlines()[0]
        == "Best within 1 B a client:  no method has trained a model within these limits"
    )
