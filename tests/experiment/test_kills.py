"""SIGKILL at any moment: the run goes on, and comes to the bytes of a run that nobody killed."""

from __future__ import annotations

import copy
import itertools
import multiprocessing
import random
import time
from pathlib import Path

import pytest

import edgefl
from edgefl.experiment import is_interrupted, resume
from edgefl.rerun.verify import verify
from edgefl.scenario.writing import dump_yaml

from ..small_runs import CELLS, SMALL, tree

CALIBRATION = {"kind": "calibration", "epochs": 2, "lr": 0.1, "proximal": 0.01, "self_confidence": True}
WORLDS = {
    "synchronous": {"methods": ["fedprox", {"method": "fedadc", "overlap": True}, "scaffold"]},
    "ensembles and personal models": {
        "methods": ["fedgkd", "slowmo"],
        "evaluation": {"ensemble": {"decay": 0.8}, "every": 2},
        "data": {"test": "partitioned", "test_images": 80},
        "personalisation": CALIBRATION,
    },
    "deadline": {
        "methods": ["fedbr", "moon"],
        "protocol": {"deadline": "80 ms", "late": "partial", "over_select": 1.4},
    },
    "deadline and oort": {
        "methods": ["fednova", "fedadam"],
        "protocol": {"deadline": "80 ms", "late": "partial"},
        "training": {"selection": "oort"},
    },
    "asynchronous": {
        "methods": ["fedavg", "fedbr", "feddyn"],
        "protocol": {"kind": "asynchronous", "buffer": 2, "concurrency": 4},
    },
    "asynchronous and oort": {
        "methods": ["scaffold"],
        "protocol": {"kind": "asynchronous", "buffer": 2, "concurrency": 4},
        "training": {"selection": "oort"},
        "evaluation": {"ensemble": {"decay": 0.8}},
    },
    "hierarchical": {"methods": ["fedavgm", "fedbr"], "protocol": {"kind": "hierarchical"}, "topology": CELLS},
}
SECTIONS = ("data", "training")
"""Of which a world says only what differs."""
# Children are copies of a process that has imported everything and trained nothing: they start in no time.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["edgefl.api", "edgefl.training.core", "edgefl.experiment"])


def scenario_of(world: str, folder: Path) -> Path:
    data = copy.deepcopy(SMALL)
    said = dict(WORLDS[world])
    data["network"]["topology"] = said.pop("topology", data["network"]["topology"])
    data["training"]["rounds"] = 12
    data["keep_models"] = "clients"
    for section in SECTIONS:
        data[section].update(said.pop(section, {}))
    path = folder / f"{world}.yaml"
    path.write_text(dump_yaml({**data, **said}), encoding="utf-8")
    return path


def start(scenario: Path, folder: Path):
    """A process that begins the run, or goes on with it."""
    if is_interrupted(folder):
        child = CONTEXT.Process(target=resume, args=(folder,))
    else:
        child = CONTEXT.Process(target=edgefl.simulate, args=(str(scenario),), kwargs={"out": str(folder)})
    child.start()
    return child


def survives(scenario: Path, folder: Path, expected: Path, delays: list[float]) -> None:
    """Kill the run after each of the delays, then let it end."""
    for delay in delays:
        child = start(scenario, folder)
        child.join(delay)
        child.kill()
        child.join()
        if (folder / "summary.json").exists() and not is_interrupted(folder):
            break
    else:
        child = start(scenario, folder)
        child.join()
        assert child.exitcode == 0
    found, wanted = tree(folder), tree(expected)
    assert sorted(found) == sorted(wanted)
    assert [name for name in wanted if found[name] != wanted[name]] == []


def kill_at_random(tmp_path: Path, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    expected, seconds = {}, {}
    scenarios = {world: scenario_of(world, tmp_path) for world in WORLDS}
    for world, scenario in scenarios.items():
        began = time.monotonic()
        child = start(scenario, tmp_path / f"{world}-expected")
        child.join()
        seconds[world] = time.monotonic() - began
        assert child.exitcode == 0
        expected[world] = tmp_path / f"{world}-expected"
        assert verify(expected[world]) == []
    left = kills
    for number in itertools.count():
        if not left:
            return
        world = list(WORLDS)[number % len(WORLDS)]
        times = min(left, rng.choice([1, 1, 1, 2]))
        left -= times
        delays = [rng.uniform(0.02, 1.0) * seconds[world] for _ in range(times)]
        survives(scenarios[world], tmp_path / f"{world}-{number}", expected[world], delays)


def test_ten_kills_at_random_moments_change_nothing(tmp_path):
    kill_at_random(tmp_path, kills=10, seed=1)


@pytest.mark.release
def test_two_hundred_kills_at_random_moments_change_nothing(tmp_path):
    kill_at_random(tmp_path, kills=200, seed=2)
