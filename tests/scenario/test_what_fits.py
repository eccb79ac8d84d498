"""What fits with what in a scenario."""

import warnings
from copy import deepcopy

import pytest

from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.planning.planning import plan
from edgefl.rerun.verify import verify
from edgefl.scenario import load_scenario, rehearse
from edgefl.scenario.loading import check

from ..small_runs import CELLS, SMALL

FINISH = {"training.local.common_finish": {"share": 0.5}}


def test_a_common_finish_needs_synchronous_rounds():
    with pytest.raises(UserError, match="needs rounds that begin for all clients at once"):
        load_scenario("5g_10clients", {**FINISH, "protocol": {"kind": "asynchronous"}})


def test_a_common_finish_needs_the_seconds_of_a_step():
    changes = {**FINISH, "methods": ["fedavg"], "cost": {"kind": "seconds", "methods": {"fedavg": "4 s"}}}
    with pytest.raises(UserError, match="needs the seconds of a local step"):
        load_scenario("5g_10clients", changes)


def test_the_options_of_one_method_are_not_those_of_the_others():
    entry = {"method": "fedavg", "local": {"common_finish": {"most": 3}}, "as": "together"}
    scenario = load_scenario("5g_10clients", {"methods": ["fedavg", entry]})
    assert [method.entry.get("local") for method in scenario.methods] == [None, {"common_finish": {"most": 3}}]


SCENARIO = {
    "name": "small",
    "data": {"name": "digits", "clients": 4},
    "model": "mlp",
    "training": {"rounds": 1, "cohort": 2},
    "fleet": [{"profile": "raspberry-pi-5", "share": 1, "link": "5g"}],
    "methods": ["fedavg"],
}
STAR = {"kind": "star", "server": {"down": "1 Mbit/s", "up": "1 Mbit/s"}}
CELLULAR = {**STAR, "kind": "cells", "cells": 2, "backhaul": STAR["server"]}


def scenario(kind, *, topology=STAR, transport=None, protocol=None):
    network = {"topology": topology, "links": {"5g": STAR["server"]}, "transport": transport or {}}
    training = {**SCENARIO["training"], "bandwidth": kind}
    return check({**SCENARIO, "training": training, "network": network, "protocol": protocol or {}})


@pytest.mark.parametrize(("kind", "parts", "message"), [
    ("least_makespan", {"topology": CELLULAR}, "'cells'; expected 'star'"),
    ("least_makespan", {"protocol": {"kind": "asynchronous"}}, "needs rounds that begin for all"),
    ("deadline_first", {}, "needs a deadline, and there is none"),
    ("deadline_first", {"protocol": {"kind": "asynchronous"}}, "needs rounds that"),
    ("proportional", {"topology": CELLULAR, "protocol": {"kind": "hierarchical"}}, "cells send to clients"),
    ("shortest_first", {"transport": {"kind": "tcp"}}, "network.transport.kind: tcp"),
    ("shortest_first", {"transport": {"multicast": True}}, "network.transport.multicast: true"),
    ("shortest_first", {"transport": {"queue": "fifo"}}, "network.transport.queue: fifo"),
    ("fastest", {}, "expected one of"),
    ({"kind": "equal", "weight": 2}, {}, "weight"),
])  # fmt: skip
def test_what_does_not_fit_is_refused_by_name(kind, parts, message):
    with pytest.raises(UserError) as raised:
        scenario(kind, **parts)
    assert message in str(raised.value)
    assert "training.bandwidth" in str(raised.value)


@pytest.mark.parametrize(("kind", "parts"), [
    ("equal", {"topology": CELLULAR, "protocol": {"kind": "hierarchical"}}),
    ("equal", {"transport": {"kind": "tcp", "queue": "fifo"}}),
    ("shortest_first", {"topology": {**CELLULAR, "sharing": "rate_fair"}}),
    ("shortest_first", {"protocol": {"kind": "asynchronous"}}),
    ("deadline_first", {"protocol": {"deadline": {"kind": "adaptive", "first": "9 s"}}, "topology": CELLULAR}),
    ({"kind": "least_makespan", "downloads": True}, {}),
])  # fmt: skip
def test_what_fits_is_accepted(kind, parts):
    named = scenario(kind, **parts).training.bandwidth
    assert named.name == (kind if isinstance(kind, str) else kind["kind"])


IN_CELLS = {"protocol": {"kind": "hierarchical"}, "network.topology": CELLULAR}
OF_MODELS = {"protocol": {"kind": "asynchronous", "mix": "models"}}
RESET = {"method": "fednova", "local": {"momentum": 0.5}, "local_momentum": 0.5}
TO_ALL = {"method": "fedadc", "full_to": "all"}
KEPT = {**RESET, "local": {"momentum": 0.5, "optimizer": {"kind": "sgd", "state": "keep"}}}


@pytest.mark.parametrize(("changes", "message"), [
    ({**IN_CELLS, "methods": ["fednova"]}, "server: server update 'fednova' needs each client's update on its own"),
    ({**IN_CELLS, "methods": [{"method": "scaffold", "control_upload": "derived"}]}, "each client's update on its own"),
    ({**IN_CELLS, "methods": [{"method": "feddyn", "weighting": "samples"}]}, "the plain sum of the clients' changes"),
    ({**OF_MODELS, "methods": ["slowmo"]}, "server update 'slowmo' needs updates that are changes of the model"),
    ({"methods": [KEPT]}, "needs local momentum that starts at zero in every round"),
    ({**IN_CELLS, "methods": ["heterofl"]}, "each client's update on its own"),
    ({**IN_CELLS, "methods": [{"method": "fedbr", "full_to": "all"}]}, "rounds that begin for all clients at once"),
    ({"methods": [{**TO_ALL, "codec": {"down": "quantise"}}]}, "downloads that are not rounded"),
])  # fmt: skip
def test_parts_that_are_right_alone_and_wrong_together_are_refused(changes, message):
    with pytest.raises(UserError, match=message):
        load_scenario("5g_10clients", changes)


def test_parts_with_what_they_need_are_accepted():
    for methods in (["scaffold", "feddyn", "fedadc"], [RESET]):
        load_scenario("5g_10clients", {**(IN_CELLS if len(methods) > 1 else {}), "methods": methods})


CRASH = {"kind": "crash", "client": 3, "at": "1 s", "duration": "5 s"}
OUTAGE = {"kind": "outage", "link": ["internet", "client/3"], "at": "1 s"}


def with_failures(*failures, **changes):
    return {**deepcopy(SMALL), **changes, "failures": list(failures)}


@pytest.mark.parametrize(
    ("failure", "field", "message"),
    [
        ({**CRASH, "client": 8}, "failures.0.client", "expected a client from 0 to 7, found 8"),
        ({**CRASH, "duration": 0}, "failures.0.duration", "more than 0"),
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


def test_options_that_change_nothing_are_named():
    hot = {"compute": {"thermal": {"after": "20 s", "sustained": 0.5}}}
    data = deepcopy(SMALL)
    data["fleet"][0] |= {"overrides": hot, "sample": {"kind": "phones", "devices": 2}, "capacity": 0.5}
    data["methods"] = ["fedbr"]
    data["model"] = {"name": "mlp", "widths": [8]}
    data["protocol"] = {"retries": 2, "reserve": 2.0}
    data["training"]["local"] |= {"input": {"seconds": "1 ms"}, "nesterov": True, "no_decay": ["*.bias"]}

    def told(cost):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            rehearse(check({**data, "cost": cost}))
        return {str(each.message).split(" has no effect")[0].split(" have no effect")[0] for each in said}

    always = {"protocol.retries", "protocol.reserve", "fleet.0.capacity", "methods.0.scheduler: bonus_scale and lam"}
    data["evaluation"] = {"share": 0.5, "images": 3}
    always |= {"training.local.nesterov", "training.local.no_decay", "evaluation.share", "evaluation.images"}
    assert told({"kind": "measured"}) == always
    declared = {"fleet.0: compute.thermal (heat)", "fleet.0.sample", "training.local.input"}
    assert told({"kind": "seconds", "methods": {"fedbr": "2 s"}}) == always | declared
