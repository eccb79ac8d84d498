"""Every field of the world's part of a scenario changes what happens, in the direction that its description states.

Each case runs a small world without training twice. What decides training alone is named below, and where it is tested.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import pytest

from edgefl.experiment.step_costs import StepCosts
from edgefl.experiment.wiring import recipe_of, setup_of, shared_world, skeleton
from edgefl.learning.cost.law import CostModel
from edgefl.learning.neutral import NeutralLearner
from edgefl.scenario.loading import check
from edgefl.scenario.overrides import overridden, parse_overrides
from edgefl.scenario.schema import json_schema
from edgefl.simulation.log import EventLog
from edgefl.simulation.run import simulate_run

BASE: dict[str, Any] = {
    "name": "small",
    "data": {
        "name": "synthetic", "shape": [1, 8, 8], "classes": 4, "train": 320, "test": 80, "clients": 8,
        "partition": {"kind": "iid"},
    },
    "model": {"name": "cnn", "width": 2},
    "training": {"rounds": 3, "cohort": 4, "local": {"epochs": 1, "batch": 16}},
    "fleet": [{"profile": name, "count": 4, "link": "l"} for name in ("raspberry-pi-4", "jetson-nano")],
    "network": {
        "topology": {"kind": "star", "server": {"down": "2 Mbit/s", "up": "2 Mbit/s"}, "latency": "20 ms"},
        "links": {"l": {"down": "1 Mbit/s", "up": "1 Mbit/s"}, "slow": {"down": "0.1 Mbit/s", "up": "0.1 Mbit/s"}},
    },
    "methods": ["fedavg"],
    "stop": "rounds",
}  # fmt: skip


class Seen(NamedTuple):
    """What a run came to."""

    seconds: float
    bytes: float
    flops: float
    joules: float
    rounds: int
    reason: str
    aggregated: int
    refused: int
    events: tuple[Any, ...]


@cache
def _seen(resolved: str) -> Seen:
    scenario = check(json.loads(resolved))
    method, seed = scenario.methods[0], scenario.seeds[0]
    costs = StepCosts(CostModel(skeleton(scenario)), recipe_of(scenario, method))
    log = EventLog()
    setup = setup_of(
        scenario, method, shared_world(scenario, seed, None), costs, learner=NeutralLearner(), trains=False, log=log
    )
    outcome = simulate_run(setup)
    spent = outcome.spent
    return Seen(
        outcome.seconds, spent.bytes_down + spent.bytes_up, spent.flops, spent.joules, outcome.rounds, outcome.reason,
        sum(row.aggregated for row in outcome.rows), sum(row.refused for row in outcome.rows), tuple(log.rows),
    )  # fmt: skip


def seen(changes: dict[str, Any]) -> Seen:
    return _seen(json.dumps(overridden(BASE, parse_overrides(changes))))


Direction = Callable[[Seen, Seen], bool]

LATER: Direction = lambda a, b: b.seconds > a.seconds  # noqa: E731
EARLIER: Direction = lambda a, b: b.seconds < a.seconds  # noqa: E731
MORE_JOULES: Direction = lambda a, b: b.joules > a.joules and b.seconds == a.seconds  # noqa: E731
MORE_WORK: Direction = lambda a, b: b.flops > a.flops and b.seconds > a.seconds  # noqa: E731
LESS_WORK: Direction = lambda a, b: b.flops < a.flops and b.seconds < a.seconds  # noqa: E731
MORE_BYTES: Direction = lambda a, b: b.bytes > a.bytes  # noqa: E731
FEWER_ROUNDS: Direction = lambda a, b: b.rounds < a.rounds  # noqa: E731
FEWER_UPDATES: Direction = lambda a, b: b.aggregated < a.aggregated  # noqa: E731
REFUSALS: Direction = lambda a, b: b.refused > a.refused  # noqa: E731
DIFFERS: Direction = lambda a, b: b.events != a.events  # noqa: E731

CELLS = {
    "network.topology": {
        "kind": "cells", "server": {"down": "2 Mbit/s", "up": "2 Mbit/s"}, "cells": 2,
        "backhaul": {"down": "1.5 Mbit/s", "up": "1.5 Mbit/s"}, "latency": "20 ms",
    }
}  # fmt: skip
ONE_CELL = {**CELLS, "network.topology.cells": 1, "network.topology.backhaul.down": "9 Mbit/s"}
DRAWN = {
    f"network.links.l.{way}": {"kind": "uniform", "low": "0.1 Mbit/s", "high": "1 Mbit/s"} for way in ("down", "up")
}
BUDGET = {"stop": "budget"}
DEADLINE = {"protocol.deadline": 0.06}
BUFFERED = {"protocol": {"kind": "asynchronous", "concurrency": 4, "buffer": 2}}
NIGHTS = {f"fleet.{group}.availability": {"kind": "diurnal", "share": 0.2} for group in (0, 1)}
CHARGED = {
    "fleet.0.overrides": {"battery": {"capacity": "0.2 J"}},
    "fleet.1.overrides": {"battery": {"capacity": "0.2 J"}},
}
GMBS = {"methods": [{"method": "fedbr", "scheduler": {"kind": "gmbs"}}]}


def figure(path: str, value: Any) -> dict[str, Any]:
    """One figure of the first group's profile."""
    for name in reversed(path.split(".")):
        value = {name: value}
    return {"fleet.0.overrides": value}


CASES: list[tuple[str, dict[str, Any], dict[str, Any], Direction]] = [
    # field of the schema, changes to the base, further changes of that field, what must follow
    ("data.clients", {}, {"data.clients": 4, "fleet.0.count": 2, "fleet.1.count": 2}, MORE_WORK),
    ("data.train", {}, {"data.train": 640}, MORE_WORK),
    ("data.shape", {}, {"data.shape": [1, 12, 12]}, MORE_WORK),
    ("data.classes", {}, {"data.classes": 12}, MORE_BYTES),
    ("data.partition.kind", {}, {"data.partition": {"kind": "dirichlet", "alpha": 0.1, "balanced": False}}, DIFFERS),
    ("model.width", {}, {"model.width": 8}, MORE_BYTES),
    ("training.rounds", {}, {"training.rounds": 2}, EARLIER),
    ("training.cohort", {}, {"training.cohort": 8}, MORE_WORK),
    ("training.local.epochs", {}, {"training.local.epochs": 3}, MORE_WORK),
    ("training.local.steps", {}, {"training.local": {"steps": 9, "batch": 16}}, MORE_WORK),
    ("training.local.batch", {}, {"training.local.batch": 40}, DIFFERS),
    ("training.local.drop_last", {}, {"training.local.drop_last": True}, LESS_WORK),
    ("training.selection.kind", {}, {"training.selection": {"kind": "fixed"}}, DIFFERS),
    ("training.selection.clients", {}, {"training.selection": {"kind": "fixed", "clients": [0, 1, 2, 3]}}, DIFFERS),
    ("protocol.kind", {}, {"protocol": {"kind": "asynchronous"}}, DIFFERS),
    ("protocol.deadline", {}, DEADLINE, EARLIER),
    ("protocol.over_select", {}, {"protocol.over_select": 2.0}, MORE_BYTES),
    ("protocol.late", DEADLINE, {"protocol.late": "partial"}, DIFFERS),
    ("protocol.reserve", {"protocol": {"deadline": 1.0, "late": "partial"}, "training.local.epochs": 2000},
     {"protocol.reserve": 20.0}, LESS_WORK),
    ("protocol.retries", {"fleet.0.dropout": 0.7}, {"protocol.retries": 5}, MORE_BYTES),
    ("protocol.ahead", {**BUFFERED, "methods": [{"method": "fedavg", "overlap": True}]}, {"protocol.ahead": 3}, DIFFERS),
    ("protocol.buffer", BUFFERED, {"protocol.buffer": 4}, LATER),
    ("protocol.concurrency", BUFFERED, {"protocol.concurrency": 8}, MORE_BYTES),
    ("fleet[].profile", {}, {"fleet.0.profile": "raspberry-pi-zero-2w"}, LATER),
    ("fleet[].count", {}, {"fleet.0.count": 7, "fleet.1.count": 1}, DIFFERS),
    ("fleet[].share", {"fleet.0": {"profile": "raspberry-pi-4", "share": 0.5, "link": "l"},
                       "fleet.1": {"profile": "jetson-nano", "share": 0.5, "link": "l"}},
     {"fleet.0.share": 0.875, "fleet.1.share": 0.125}, DIFFERS),
    ("fleet[].link", {}, {"fleet.0.link": "slow"}, LATER),
    ("fleet[].dropout", {}, {"fleet.0.dropout": 1.0}, FEWER_UPDATES),
    ("fleet[].sample", {}, {"fleet.0.sample": {"kind": "phones"}}, DIFFERS),
    ("fleet[].sample.models", {"fleet.0.sample": {"kind": "phones"}}, {"fleet.0.sample.models": "all"}, DIFFERS),
    ("fleet[].sample.devices", {"fleet.0.sample": {"kind": "phones"}}, {"fleet.0.sample.devices": 2}, DIFFERS),
    ("fleet[].overrides", {}, figure("power.idle", "2.9 W"), DIFFERS),
    ("fleet[].availability.kind", {}, NIGHTS, DIFFERS),
    ("fleet[].availability.share", NIGHTS, {"fleet.0.availability.share": 0.05, "fleet.1.availability.share": 0.05},
     DIFFERS),
    ("fleet[].availability.peak", NIGHTS, {"fleet.0.availability.peak": "12 h", "fleet.1.availability.peak": "12 h"},
     LATER),
    ("fleet[].availability.spread", NIGHTS, {"fleet.0.availability.spread": "12 h"}, DIFFERS),
    ("fleet[].profile.compute.fp32_achievable", {"data.shape": [1, 32, 32], "model.width": 16},
     figure("compute.fp32_achievable", "0.1 GFLOP/s"), LATER),
    ("fleet[].profile.compute.memory_bandwidth", {}, figure("compute.memory_bandwidth", "1 MB/s"), LATER),
    ("fleet[].profile.compute.operator_overhead", {}, figure("compute.operator_overhead", "10 ms"), LATER),
    ("fleet[].profile.compute.operator_rates", {},
     figure("compute.operator_rates", {"elementwise": {"operator_overhead": "10 ms"}}), LATER),
    ("fleet[].profile.compute.step_overhead", {}, figure("compute.step_overhead", "1 s"), LATER),
    ("fleet[].profile.compute.jitter", {}, figure("compute.jitter", 1.0), DIFFERS),
    ("fleet[].profile.compute.background_load", {}, figure("compute.background_load", 0.9), LATER),
    ("fleet[].profile.compute.thermal", {"data.shape": [1, 32, 32], "model.width": 16},
     figure("compute.thermal", {"after": "1 ms", "sustained": 0.01}), LATER),
    ("fleet[].profile.memory.training", {}, figure("memory.training", "1 kB"), REFUSALS),
    ("fleet[].profile.power.idle", {}, figure("power.idle", "2.9 W"), DIFFERS),
    ("fleet[].profile.power.compute", {}, figure("power.compute", "90 W"), MORE_JOULES),
    ("fleet[].profile.power.radio.promotion", {}, figure("power.radio.promotion", "5 J"), MORE_JOULES),
    ("fleet[].profile.power.radio.tail", {}, figure("power.radio.tail", {"seconds": "9 s", "watts": "1 W"}),
     MORE_JOULES),
    *((f"fleet[].profile.power.radio.{way}.{name}", {}, figure(f"power.radio.{way}.{name}", value), MORE_JOULES)
      for way in ("down", "up") for name, value in (("active", "30 W"), ("energy_per_megabyte", "300 J"))),
    ("fleet[].profile.battery", {}, CHARGED, DIFFERS),
    ("fleet[].profile.battery.capacity", CHARGED, figure("battery.capacity", "900 kJ"), DIFFERS),
    ("network.links.*.down", {}, {"network.links.l.down": "0.2 Mbit/s"}, LATER),
    ("network.links.*.up", {}, {"network.links.l.up": "0.2 Mbit/s"}, LATER),
    ("network.links.*.latency", {}, {"network.links.l.latency": "3 s"}, LATER),
    ("network.links.*.redraw", DRAWN, {"network.links.l.redraw": "1 round"}, DIFFERS),
    ("network.links.*.symmetric", DRAWN, {"network.links.l.symmetric": True}, DIFFERS),
    ("network.topology.kind", {}, CELLS, DIFFERS),
    ("network.topology.latency", {}, {"network.topology.latency": "3 s"}, LATER),
    ("network.topology.server.down", {}, {"network.topology.server.down": "0.2 Mbit/s"}, LATER),
    ("network.topology.server.up", {}, {"network.topology.server.up": "0.2 Mbit/s"}, LATER),
    ("network.topology.cells", CELLS, {"network.topology.cells": 1}, LATER),
    ("network.topology.backhaul.down", CELLS, {"network.topology.backhaul.down": "0.2 Mbit/s"}, LATER),
    ("network.topology.backhaul.up", CELLS, {"network.topology.backhaul.up": "0.2 Mbit/s"}, LATER),
    ("network.topology.sharing", ONE_CELL, {"network.topology.sharing": "rate_fair"}, LATER),
    ("network.transport.kind", {}, {"network.transport.kind": "lv08"}, LATER),
    ("network.transport.acknowledgements", {"network.transport.kind": "lv08"},
     {"network.transport.acknowledgements": "shared"}, LATER),
    ("network.transport.connection_limit", {}, {"network.transport.connection_limit": "0.1 Mbit/s"}, LATER),
    ("network.transport.multicast", {"network.topology.server.down": "0.2 Mbit/s"},
     {"network.transport.multicast": True}, EARLIER),
    ("cost.kind", {}, {"cost": {"kind": "seconds", "methods": {"fedavg": 60}}}, LATER),
    ("cost.methods", {"cost": {"kind": "seconds", "methods": {"fedavg": 6}}}, {"cost.methods": {"fedavg": 7}}, LATER),
    ("cost.redraw", {"cost": {"kind": "seconds", "methods": {"fedavg": {"low": 1, "high": 9}}}},
     {"cost.redraw": "1 round"}, DIFFERS),
    ("budgets.seconds", BUDGET, {"budgets.seconds": 0.1}, EARLIER),
    ("budgets.bytes", BUDGET, {"budgets.bytes": 5000}, FEWER_ROUNDS),
    ("budgets.client_bytes", BUDGET, {"budgets.client_bytes": 3000}, FEWER_ROUNDS),
    ("budgets.flops", BUDGET, {"budgets.flops": 1e5}, FEWER_ROUNDS),
    ("budgets.joules", BUDGET, {"budgets.joules": 0.5}, FEWER_ROUNDS),
    ("stop", {"budgets.seconds": 0.1}, BUDGET, FEWER_ROUNDS),
    ("methods[].method", {}, {"methods": ["moon"]}, MORE_WORK),
    ("methods[].overlap", {"methods": [{"method": "fedadc"}]}, {"methods.0.overlap": True}, EARLIER),
    ("methods[].scheduler.kind", GMBS, {"methods": [{"method": "fedbr", "scheduler": {"kind": "all"}}]}, DIFFERS),
    ("methods[].local.batch", {}, {"methods": [{"method": "fedavg", "local": {"batch": 40}}]}, DIFFERS),
    ("seeds[]", {}, {"seeds": [1]}, DIFFERS),
]  # fmt: skip

ELSEWHERE = {
    "name": "what the run is called",
    "published": "what a paper reports; read by the report (tests/report)",
    "sweep": "what the sweep tries (tests/experiment/test_sweep.py)",
    "keep_models": "what is left on disk (tests/experiment/test_run_directory.py)",
    "target": "a target needs accuracies (tests/simulation/test_budgets_and_targets.py)",
    "evaluation": "what accuracies are measured on (tests/experiment, tests/learning/data)",
    "personalisation": "what clients make of the final model (tests/learning/personalisation)",
    "data": "which images a client has, not how many (tests/learning/data)",
    "model": "which model (tests/learning/models, and its cost in tests/learning/cost)",
    "methods[]": "what is trained (tests/learning/methods, objectives, rules, servers, payloads; tests/scheduling)",
    "training.local": "how a step learns, not how long it takes (tests/learning/rules)",
    "training.selection": "options of a selection (tests/scheduling)",
    "protocol.mixing": "what updates are worth (tests/experiment/test_asynchronous_run.py)",
    "protocol.mix": "what updates are worth (tests/experiment/test_asynchronous_run.py)",
    "protocol.staleness": "what updates are worth (tests/simulation/test_asynchronous.py)",
    "network.topology.clients": "a graph's names (tests/network/test_network_specs.py)",
    "network.topology.file": "a graph of one's own (tests/network/test_network_specs.py)",
    "fleet[].availability": "traces of one's own, and days (tests/fleet/test_availability.py)",
    "fleet[].profile.battery": "charging over long times (tests/fleet/test_battery.py)",
    "fleet[].profile.compute.measured_steps": "a table that wins over the roofline (tests/fleet/test_roofline.py)",
    "fleet[].profile.compute.fp32_peak": "bounds what a profile may claim (tests/fleet/test_device_profile.py)",
    "fleet[].profile.compute.processor": "a description",
    "fleet[].profile.memory.total": "bounds what a profile may claim (tests/fleet/test_device_profile.py)",
    "fleet[].profile.description": "a description",
    "fleet[].profile.kind": "a description",
    "fleet[].profile.name": "a description",
    "fleet[].profile.provenance": "where figures come from",
    "fleet[].sample.kind": "has one value",
}
"""Fields, or sections whose fields are not above, with what they are for and where that is tested."""


def leaves(node: Any, definitions: dict[str, Any], path: str = "", inside: tuple[str, ...] = ()) -> set[str]:
    """The path of every field of a JSON schema that has no fields itself."""
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        return set() if name in inside else leaves(definitions[name], definitions, path, (*inside, name))
    found: set[str] = set()
    for key in ("anyOf", "oneOf", "allOf"):
        for each in node.get(key, ()):
            found |= leaves(each, definitions, path, inside)
    for name, inner in node.get("properties", {}).items():
        found |= leaves(inner, definitions, f"{path}.{name}" if path else name, inside)
    for key, suffix in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(node.get(key), dict):
            found |= leaves(node[key], definitions, path + suffix, inside)
    return found or {path}


def below(path: str, section: str) -> bool:
    return path == section or path.startswith((f"{section}.", f"{section}[", f"{section}_", f"{section}s"))


@pytest.mark.parametrize(("base", "change", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_field_changes_what_happens_as_it_says(base, change, expected):
    before, after = seen(base), seen({**base, **change})
    assert after.events != before.events
    assert expected(before, after)


def test_every_field_of_the_schema_is_above_or_tested_elsewhere():
    schema = json_schema()
    paths = leaves(schema, schema["$defs"])
    covered = {case[0] for case in CASES}
    sections = {"fleet[].profile", *(each.rpartition(".")[0] for each in covered)}

    def known(path: str) -> bool:
        # A figure's bounds and a mapping's own keys belong to it; a section that may be null is its fields.
        own = any(path == each or path.startswith((f"{each}.", f"{each}[")) for each in covered - {"fleet[].profile"})
        return own or path in sections or any(below(path, section) for section in ELSEWHERE)

    assert sorted(path for path in paths if not known(path)) == []
    assert sorted(path for path in covered if not any(below(leaf, path) for leaf in paths)) == []
