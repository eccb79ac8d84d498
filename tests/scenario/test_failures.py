"""``failures`` in a scenario: wrong ones are refused in one sentence, and runs with them verify."""

from __future__ import annotations

from copy import deepcopy

import pytest

from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.planning.planning import plan
from edgefl.rerun.verify import verify
from edgefl.scenario import rehearse
from edgefl.scenario.loading import check

from ..small_runs import CELLS, SMALL

CRASH = {"kind": "crash", "client": 3, "at": "1 s", "duration": "5 s"}
OUTAGE = {"kind": "outage", "link": ["internet", "client/3"], "at": "1 s"}


def with_failures(*failures, **changes):
    return {**deepcopy(SMALL), **changes, "failures": list(failures)}


@pytest.mark.parametrize(
    ("failure", "field", "message"),
    [
        ({**CRASH, "client": 8}, "failures.0.client", "expected a client from 0 to 7, found 8"),
        ({**CRASH, "duration": 0}, "failures.0", "more than 0 s"),
        ({"kind": "crash", "client": 3}, "failures.0.at", ""),
        ({**CRASH, "link": ["a", "b"]}, "failures.0.link", ""),
        ({**CRASH, "kind": "fire"}, "failures.0.kind", "crash"),
        ({**OUTAGE, "link": ["internet"]}, "failures.0.link", ""),
        ({**OUTAGE, "link": ["server", "client/3"]}, "failures.0.link", "from 'server' expected one of: internet"),
        ({**OUTAGE, "link": ["internet", "client/9"]}, "failures.0.link", "no node 'client/9'"),
    ],
)
def test_a_wrong_failure_is_refused_in_one_sentence(failure, field, message):
    with pytest.raises(UserError) as refused:
        rehearse(check(with_failures(failure)))
    assert refused.value.field.startswith(field)
    assert message in refused.value.message
    assert "\n" not in str(refused.value)


HIERARCHICAL = pytest.param({"kind": "hierarchical"}, marks=pytest.mark.full)


@pytest.mark.parametrize("protocol", [{}, {"kind": "asynchronous", "buffer": 2}, HIERARCHICAL])
def test_runs_with_failures_verify(tmp_path, protocol):
    hierarchical = protocol.get("kind") == "hierarchical"
    near = "cell/0" if hierarchical else "internet"
    failures = [
        *({"kind": "crash", "client": client, "at": 0.01 + client / 50, "duration": 0.05} for client in range(8)),
        {"kind": "outage", "link": [near, "client/0"], "at": 0.02, "duration": 0.1},
        {"kind": "outage", "link": ["internet", near] if hierarchical else ["server", "internet"], "at": 0.3,
         "duration": 0.4, "one_way": True},
    ]  # fmt: skip
    scenario = with_failures(*failures, protocol=protocol, methods=["fedavg", {"method": "fedadc", "overlap": True}])
    scenario["training"]["rounds"] = 8
    if hierarchical:
        scenario["network"]["topology"] = CELLS
    path = run(check(scenario), out=tmp_path / "run", train=False)
    assert verify(path) == []


def test_a_plan_names_the_failure_whose_link_does_not_exist():
    scenario = check(with_failures(CRASH, {**OUTAGE, "link": ["client/0", "server"]}))
    with pytest.raises(UserError, match="no link 'client/0' -> 'server'") as refused:
        plan(scenario)
    assert refused.value.field == "failures.1.link"
