"""What a bandwidth allocation needs of the rest of a scenario."""

import pytest

from edgefl.errors import UserError
from edgefl.scenario.loading import check

SCENARIO = {
    "name": "small",
    "data": {"name": "digits", "clients": 4},
    "model": "mlp",
    "training": {"rounds": 1, "cohort": 2},
    "fleet": [{"profile": "raspberry-pi-5", "share": 1, "link": "5g"}],
    "methods": ["fedavg"],
}
STAR = {"kind": "star", "server": {"down": "1 Mbit/s", "up": "1 Mbit/s"}}
CELLS = {**STAR, "kind": "cells", "cells": 2, "backhaul": STAR["server"]}


def scenario(kind, *, topology=STAR, transport=None, protocol=None):
    network = {"topology": topology, "links": {"5g": STAR["server"]}, "transport": transport or {}}
    training = {**SCENARIO["training"], "bandwidth": kind}
    return check({**SCENARIO, "training": training, "network": network, "protocol": protocol or {}})


@pytest.mark.parametrize(("kind", "parts", "message"), [
    ("least_makespan", {"topology": CELLS}, "'star', found 'cells'"),
    ("least_makespan", {"protocol": {"kind": "asynchronous"}}, "needs rounds, and protocol 'asynchronous' has none"),
    ("deadline_first", {}, "needs a deadline: expected protocol.deadline, found null"),
    ("deadline_first", {"protocol": {"kind": "asynchronous"}}, "needs rounds"),
    ("proportional", {"topology": CELLS, "protocol": {"kind": "hierarchical"}}, "cells that average"),
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
    ("equal", {"topology": CELLS, "protocol": {"kind": "hierarchical"}}),
    ("equal", {"transport": {"kind": "tcp", "queue": "fifo"}}),
    ("shortest_first", {"topology": {**CELLS, "sharing": "rate_fair"}}),
    ("shortest_first", {"protocol": {"kind": "asynchronous"}, "transport": {"kind": "lv08"}}),
    ("deadline_first", {"protocol": {"deadline": {"kind": "adaptive", "first": "9 s"}}, "topology": CELLS}),
    ({"kind": "least_makespan", "downloads": True}, {}),
])  # fmt: skip
def test_what_fits_is_accepted(kind, parts):
    named = scenario(kind, **parts).training.bandwidth
    assert named.name == (kind if isinstance(kind, str) else kind["kind"])
