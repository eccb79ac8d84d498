"""Where local work to a common finish is refused, and whose it is."""

from __future__ import annotations

import pytest

from edgefl.errors import UserError
from edgefl.scenario import load_scenario

FINISH = {"training.local.common_finish": {"share": 0.5}}


def test_a_common_finish_needs_synchronous_rounds():
    with pytest.raises(UserError, match="only synchronous rounds have"):
        load_scenario("5g_10clients", {**FINISH, "protocol": {"kind": "asynchronous"}})


def test_a_common_finish_needs_the_seconds_of_a_step():
    changes = {**FINISH, "methods": ["fedavg"], "cost": {"kind": "seconds", "methods": {"fedavg": "4 s"}}}
    with pytest.raises(UserError, match="needs the seconds of a local step"):
        load_scenario("5g_10clients", changes)


def test_the_options_of_one_method_are_not_those_of_the_others():
    entry = {"method": "fedavg", "local": {"common_finish": {"most": 3}}, "as": "together"}
    scenario = load_scenario("5g_10clients", {"methods": ["fedavg", entry]})
    assert [method.entry.get("local") for method in scenario.methods] == [None, {"common_finish": {"most": 3}}]
