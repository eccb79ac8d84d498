"""A log is held to its scenario: whatever the scenario says is noticed when it says something else."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path

import pytest

from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.experiment.directory import read_run_summary
from edgefl.experiment.inputs import digest_of_scenario
from edgefl.rerun.verify import differences, verify
from edgefl.scenario import resolve
from edgefl.scenario.loading import check

from ..small_runs import CELLS, SMALL

GENERATED = {"kind": "process", "like": "5g_walking", "outage_every": "20 s"}
FAILING = {
    "kind": "process", "quantiles": {0: "0.02 Mbit/s", 100: "0.1 Mbit/s"}, "step": "50 ms",
    "outage_every": "500 ms", "outage_length": "300 ms",
}  # fmt: skip
SHAPES = {
    "star": {"methods": ["fedavg", {"method": "fedbr", "scheduler": {"kind": "gmbs"}}]},
    "cells": {"network": {**SMALL["network"], "topology": {**CELLS, "sharing": "rate_fair"}}},
    "traces": {
        "network": {
            "topology": SMALL["network"]["topology"],
            "links": {"5g": {"down": GENERATED, "up": "9 Mbit/s", "latency": "5 ms"}},
        },
        "methods": [{"method": "fedadc", "overlap": True}],
        "protocol": {"kind": "synchronous", "deadline": "2 s", "over_select": 1.5},
    },
    "hierarchical": {
        "network": {**SMALL["network"], "topology": CELLS},
        "protocol": {"kind": "hierarchical", "over_select": 1.5},
    },
    "asynchronous": {"protocol": {"kind": "asynchronous", "buffer": 2, "concurrency": 3}},
    "tcp": {
        "seeds": [3],
        "network": {
            "topology": {"kind": "star", "server": {"down": "90 kbit/s", "up": "90 kbit/s"}, "latency": "20 ms"},
            "links": {"5g": {"down": "1 Mbit/s", "up": "1 Mbit/s"}},
            "transport": {
                "kind": "tcp",
                "packet_bytes": 100,
                "initial_window": 1,
                "keep_alive": "1 min",
                "loss": 0.05,
                "acknowledge_every": 2,
                "queue": "fifo",
            },
        },
        "protocol": {"kind": "synchronous", "deadline": "3 s"},
    },
    "timeouts": {
        "network": {
            "topology": SMALL["network"]["topology"],
            "links": {"5g": {"down": FAILING, "up": FAILING}},
            "transport": {
                "timeouts": {
                    "connection": "100 ms",
                    "transfer": "150 ms",
                    "retries": 3,
                    "first_wait": "100 ms",
                    "factor": 1.3,
                    "longest_wait": "140 ms",
                    "resume": "ranges",
                    "chunk": "100 B",
                },
            },
        },
        "protocol": {"kind": "synchronous", "deadline": {"kind": "adaptive", "rounds": 2, "first": "2 s"}},
        "training": {**SMALL["training"], "rounds": 8},
    },
}

NOT_PART = {
    "data.root": "the contents of the data are digested, wherever they lie",
    "training.engine.kind": "all engines come to the same bits",
}
"""Leaves that may change without notice, and why."""


def leaves(data, path=()):
    """Every place of plain data that holds no list or mapping."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else None
    if items is None:
        yield path
        return
    for key, value in items:
        yield from leaves(value, (*path, key))


def with_other(data, path):
    """The data with another value at one place."""
    data = copy.deepcopy(data)
    *way, last = path
    part = data
    for key in way:
        part = part[key]
    value = part[last]
    part[last] = (
        not value if isinstance(value, bool)
        else value + 1 if isinstance(value, int)
        else value * 1.25 + 1e-3 if isinstance(value, float)
        else f"{value}x" if isinstance(value, str)
        else 7
    )  # fmt: skip
    return data


@pytest.fixture(scope="module", params=SHAPES)
def finished(request, tmp_path_factory):
    """A run of each shape, and what its scenario says."""
    scenario = check(copy.deepcopy(SMALL) | SHAPES[request.param])
    return run(scenario, out=tmp_path_factory.mktemp("shape") / "run", train=False), resolve(scenario)


def test_a_sound_run_of_every_shape_passes(finished):
    folder, data = finished
    assert verify(folder) == []
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["inputs"]["scenario"] == digest_of_scenario(data)


def test_every_leaf_of_a_scenario_is_part_of_its_digest(finished):
    _, data = finished
    places = [path for path in leaves(data) if ".".join(map(str, path)) not in NOT_PART]
    assert len(places) > 100
    own = digest_of_scenario(data)
    assert all(digest_of_scenario(with_other(data, path)) != own for path in places)


def test_another_digest_is_noticed_whatever_else_is_sound(finished, tmp_path):
    copied = tmp_path / "run"
    shutil.copytree(finished[0], copied)
    file = copied / "scenario.yaml"
    file.write_text(file.read_text().replace("weight_decay: 0.0", "weight_decay: 0.001"))
    assert verify(copied) == [f"{file} is not the scenario that the run was made from"]


WORLD = {
    "seeds.0", "data.clients", "training.rounds", "training.cohort", "training.local.batch", "training.local.epochs",
    "fleet.0.share", "fleet.0.profile.compute.fp32_achievable", "model.width", "methods.0.method",
    "network.topology.latency", "network.topology.server.down", "network.topology.server.up",
    "network.topology.backhaul.up", "network.topology.sharing", "network.links.5g.down.low",
    "network.links.5g.down.high", "network.links.5g.up.high", "network.links.5g.up.rate", "network.links.5g.redraw",
    "network.links.5g.latency", "network.links.5g.down.like", "network.links.5g.down.correlation",
    "network.transport.kind", "network.transport.handshake", "network.transport.keep_alive",
    "network.transport.packet_bytes", "network.transport.header_bytes", "network.transport.framing_bytes",
    "network.transport.initial_window", "network.transport.loss",
    "network.transport.acknowledge_every", "network.transport.queue", "network.transport.queue_spread",
    "network.transport.timeouts.connection", "network.transport.timeouts.transfer",
    "network.transport.timeouts.retries", "network.transport.timeouts.first_wait",
    "network.transport.timeouts.factor", "network.transport.timeouts.longest_wait",
    "network.transport.timeouts.jitter", "network.transport.timeouts.resume", "network.transport.timeouts.chunk",
    "protocol.deadline.deviations", "protocol.deadline.rounds", "protocol.deadline.first", "protocol.over_select",
    "protocol.buffer", "protocol.concurrency", "stop",
}  # fmt: skip
"""Places that decide what happens in the world; those that a shape has."""
NOT_READ = {
    # The link has a latency of its own, and the run ends within a step of the generated series.
    "traces": {"network.topology.latency", "network.links.5g.down.correlation"},
    # The protocol says how many are under way.
    "asynchronous": {"training.cohort"},
    # Its clients return within the minute for which their connections are kept.
    "tcp": {"network.transport.keep_alive"},
}
"""Of these, what the run of a shape does not come to."""
MEASURED = {
    "data.shape.1", "data.shape.2", "training.local.momentum", "training.local.weight_decay",
    "training.local.clip_norm",
}  # fmt: skip
"""What changes the measured cost of a step by little; the costs are taken from ``costs.json``, not measured again."""


def _noticed(folder, summary, data, path):
    try:
        return bool(differences(folder, summary, check(with_other(data, path))))
    except UserError:
        return True  # it is no scenario at all


def test_what_decides_in_the_world_is_noticed_without_the_digest(finished, request):
    """Somebody who forges the digest, too, must still explain the log."""
    folder, data = finished
    summary = read_run_summary(folder)
    tried = [path for path in leaves(data) if ".".join(map(str, path)) in WORLD]
    assert len(tried) > 10
    blind = {".".join(map(str, path)) for path in tried if not _noticed(folder, summary, data, path)}
    assert blind == NOT_READ.get(request.node.callspec.params["finished"], set())


ONLY_TRAINING = {
    *("training.local.lr", "training.local.lr_decay", "training.local.momentum", "training.local.nesterov"),
    *("training.local.weight_decay", "training.local.clip_norm", "methods.0.server_lr"),
}
"""Options that neither the log nor the costs of a step show."""


def test_what_verify_cannot_find_is_said_on_its_page(tmp_path):
    changes = {"training": {**SMALL["training"], "rounds": 2, "local": {"batch": 16, "momentum": 0.5, "lr_decay": 0.5}}}
    scenario = check(copy.deepcopy(SMALL) | changes)
    folder, data = run(scenario, out=tmp_path / "run"), resolve(scenario)
    summary = read_run_summary(folder)
    places = {".".join(map(str, path)): path for path in leaves(data)}
    assert {name for name in ONLY_TRAINING if _noticed(folder, summary, data, places[name])} == set()
    page = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text(encoding="utf-8")
    said = page.partition("### What `verify` cannot find")[2].partition("\n#")[0]
    assert {name for name in ONLY_TRAINING if f"`{name.rpartition('.')[2]}`" not in said} == set()


@pytest.mark.release
def test_what_leads_to_another_log_is_noticed_without_the_digest(finished, tmp_path):
    """Every leaf, against a run of the scenario in which it is another."""
    folder, data = finished
    summary = read_run_summary(folder)
    logs = {each.relative_to(folder): each.read_bytes() for each in folder.rglob("events.parquet")}
    blind = []
    for number, path in enumerate(leaves(data)):
        if _noticed(folder, summary, data, path):
            continue
        other = run(check(with_other(data, path)), out=tmp_path / str(number), train=False)
        if {each.relative_to(other): each.read_bytes() for each in other.rglob("events.parquet")} != logs:
            blind.append(".".join(map(str, path)))
    assert set(blind) <= MEASURED
