"""A run that was interrupted or killed goes on to the same bytes as one that was not."""

from __future__ import annotations

import multiprocessing
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import edgefl
from edgefl.cli import main
from edgefl.experiment import is_interrupted, resume, run
from edgefl.rerun.verify import verify
from edgefl.scenario import resolve
from edgefl.training.learner import MethodLearner
from edgefl.yaml_file import dump_yaml

from ..small_runs import ACCIDENTS, CELLS, FAILING, LEVELS, LOCAL_PART, TCP, Stop, tree

CALIBRATION = {"kind": "calibration", "epochs": 2, "lr": 0.1, "proximal": 0.01, "self_confidence": True}
KEPT = {"evaluation": {"ensemble": {"decay": 0.8}, "every": 2}, "keep_models": "clients"}
ASYNCHRONOUS = {"kind": "asynchronous", "buffer": 2, "concurrency": 4}
SPARSE = {"up": {"kind": "top_k", "fraction": 0.02}, "down": {"kind": "quantise", "rounding": "stochastic"}}
CODECS = [
    {"method": "fedbr", "codec": SPARSE},
    {"method": "scaffold", "codec": {"up": {"kind": "quantise", "bits": 4}, "down": "cast"}},
    {"method": "fedadc", "codec": SPARSE, "overlap": True},
]
KEPT_OPTIMIZER = {"optimizer": {"kind": "adamw", "state": "keep"}, "lr": 0.01}
WORLDS = {
    "synchronous": {"methods": ["scaffold", {"method": "fedadc", "overlap": True}]},
    "deadline": {"methods": ["fedbr", "moon"], "protocol": {"deadline": "80 ms"}},
    "asynchronous": {"methods": ["fedbr", "fedavg"], "protocol": ASYNCHRONOUS},
    "hierarchical": {
        "methods": ["fedbr", "feddyn"],
        "protocol": {"kind": "hierarchical"},
        "network__topology": CELLS,
        **KEPT,
    },
    "ensembles and every client's model": {**KEPT, "methods": ["fedgkd", "slowmo"]},
    "personalisation": {
        "data__test": "partitioned",
        "data__test_images": 80,
        "personalisation": CALIBRATION,
        "methods": ["fedadc"],
    },
    "partial work and oort selection": {
        "protocol": {"deadline": "80 ms", "late": "partial", "over_select": 1.4},
        "training__selection": "oort",
        **KEPT,
        "methods": ["fednova", "fedadam"],
    },
    "asynchronous, oort selection": {
        "protocol": ASYNCHRONOUS,
        "training__selection": "oort",
        **KEPT,
        "methods": ["scaffold"],
    },
    "losses that clients are asked for": {
        "training__selection": {"kind": "power_of_choice", "images": 20},
        "methods": ["scaffold"],
    },
    "kept optimizer and central": {
        "methods": [
            {"method": "fedavg", "local": KEPT_OPTIMIZER},
            {"method": "central", "local": KEPT_OPTIMIZER, "profile": "laptop-8-core"},
        ],
        **ACCIDENTS,
    },
    "tiers": {"training__selection": {"kind": "tifl", "tiers": 3, "interval": 2}, "methods": ["fedbr"]},
    "least available": {"training__selection": {"kind": "refl", "rest": 1}, "methods": ["fedavg"]},
    "utility and batteries": {"training__selection": "eafl", "methods": ["moon"]},
    "overlap, asynchronous": {
        "methods": [{"method": "fedadc", "overlap": True}, {"method": "scaffold", "overlap": True}],
        "protocol": {**ASYNCHRONOUS, "ahead": 2, "retries": 1},
        **ACCIDENTS,
    },
    "overlap, hierarchical": {
        "methods": [{"method": "fedadc", "overlap": True}, {"method": "scaffold", "overlap": True}],
        "protocol": {"kind": "hierarchical", "retries": 1},
        "network__topology": CELLS,
        **ACCIDENTS,
    },
    "TCP": {"methods": ["fedavg"], "network__transport": TCP},
    "TCP, asynchronous": {"methods": ["fedavg"], "network__transport": TCP, "protocol": ASYNCHRONOUS},
    "broken transfers": {**FAILING, "methods": ["fedbr", {"method": "fedadc", "overlap": True}, "scaffold"]},
    "broken transfers, cells": {
        **FAILING,
        "protocol": {"kind": "hierarchical", "deadline": "20 s"},
        "network__topology": CELLS,
    },
    "broken transfers, asynchronous": {**FAILING, "protocol": ASYNCHRONOUS},
    "codecs": {"methods": CODECS},
    "codecs, asynchronous": {"methods": CODECS[:2], "protocol": ASYNCHRONOUS},
    "local part": LOCAL_PART,
    "local part and a deadline": {**LOCAL_PART, "protocol": {"deadline": "0.05 s"}},
    "capacity levels": LEVELS,
    "gossip": {
        "protocol": {"kind": "gossip", "neighbours": "exponential", "exchange": "one_random", "mixing": "push_sum"},
        **ACCIDENTS,
        **KEPT,
        "methods": ["moon"],
    },
    "a ring": {"protocol": {"kind": "ring_all_reduce", "retries": 1}, **ACCIDENTS},
}


@pytest.fixture
def often(monkeypatch):
    """A checkpoint after every third round."""
    monkeypatch.setattr("edgefl.experiment.checkpoints.CHECKPOINT_EVERY", 3)


def full(world, after):
    return pytest.param(world, after, marks=pytest.mark.full)


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize(
    ("world", "after"),
    [
        ("synchronous", 4),
        ("kept optimizer and central", 4),
        full("asynchronous", 5),
        full("synchronous", 2),
        full("synchronous", 9),
        full("deadline", 6),
        *(full(world, 4) for world in list(WORLDS)[3:] if world != "kept optimizer and central"),
    ],
)
def test_a_resumed_run_is_byte_identical(small, tmp_path, world, after):
    scenario, folder = small(**WORLDS[world], training__rounds=5), tmp_path / "run"
    expected = tree(run(scenario, out=tmp_path / "expected"))
    with pytest.raises(KeyboardInterrupt):
        run(scenario, out=folder, listeners=[Stop(after)])
    assert is_interrupted(folder)
    if after == 4 and len(scenario.methods) > 1:  # the second process is interrupted as well
        with pytest.raises(KeyboardInterrupt):
            resume(folder, listeners=[Stop(7)])
    found = tree(resume(folder))
    assert sorted(found) == sorted(expected)
    assert [name for name in expected if found[name] != expected[name]] == []
    assert verify(folder) == []


@pytest.fixture
def trained(monkeypatch) -> list[int]:
    """The versions of the model from which training goes on, in order."""
    versions: list[int] = []
    aggregate = MethodLearner.aggregate
    monkeypatch.setattr(
        MethodLearner, "aggregate", lambda self, v, *rest: (versions.append(v), aggregate(self, v, *rest))[1]
    )
    return versions


@pytest.mark.usefixtures("often")
def test_up_to_the_checkpoint_nothing_is_trained_again(small, tmp_path, trained):
    with pytest.raises(KeyboardInterrupt):
        run(small(training__rounds=6), out=tmp_path / "run", listeners=[Stop(5)])
    trained.clear()
    resume(tmp_path / "run")
    assert trained == [3, 4, 5]


@pytest.mark.parametrize("stop", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.full)])
def test_a_killed_process_is_resumed_to_the_same_bytes(small, tmp_path, stop):
    scenario = small(methods=["scaffold"], training__rounds=14)
    path, folder = tmp_path / "my.yaml", tmp_path / "run"
    path.write_text(dump_yaml(resolve(scenario)), encoding="utf-8")
    program = "import sys; from edgefl.cli import main; sys.exit(main())"
    with subprocess.Popen(
        [sys.executable, "-c", program, "simulate", str(path), "--engine", "sequential", "--out", str(folder)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        patience = time.monotonic() + 120
        while not list(folder.rglob("checkpoints/round-*.json")) and time.monotonic() < patience:
            time.sleep(0.01)
        process.send_signal(stop)
        said = process.communicate()[1]
    assert process.returncode == (-stop if stop == signal.SIGKILL else 128 + stop)
    assert (f"edgefl simulate --resume {folder}" in said) == (stop != signal.SIGKILL)
    assert is_interrupted(folder)
    assert main(["simulate", str(path), "--out", str(folder)]) == 2  # it says how to resume
    assert tree(resume(folder)) == tree(run(scenario, out=tmp_path / "expected", engine="sequential"))


# Children are copies of a process that has imported everything and trained nothing: they start at once.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["edgefl.api", "edgefl.training.core", "edgefl.experiment"])


def start(scenario: Path, folder: Path):
    """A process that begins the run, or resumes it."""
    if is_interrupted(folder):
        child = CONTEXT.Process(target=resume, args=(folder,))
    else:
        child = CONTEXT.Process(target=edgefl.simulate, args=(str(scenario),), kwargs={"out": str(folder)})
    child.start()
    return child


def survives(scenario: Path, folder: Path, expected: dict[str, bytes], delays: list[float]) -> None:
    """Kill the run after each of the delays, then let it end."""
    for delay in delays:
        child = start(scenario, folder)
        child.join(delay)
        child.kill()
        child.join()
    if is_interrupted(folder) or not (folder / "summary.json").exists():
        child = start(scenario, folder)
        child.join()
        assert child.exitcode == 0
    found = tree(folder)
    assert sorted(found) == sorted(expected)
    assert [name for name in expected if found[name] != expected[name]] == []


@pytest.mark.release
@pytest.mark.parametrize("kills", [2, 17])
def test_kills_at_random_moments_change_nothing(small, tmp_path, kills):
    rng = random.Random(kills)
    for world, changes in list(WORLDS.items())[:12]:
        scenario = tmp_path / f"{world}.yaml"
        scenario.write_text(dump_yaml(resolve(small(**changes, training__rounds=12))), encoding="utf-8")
        began = time.monotonic()
        child = start(scenario, tmp_path / world)
        child.join()
        seconds = time.monotonic() - began
        assert child.exitcode == 0
        expected = tree(tmp_path / world)
        for number in range(kills):
            delays = [rng.uniform(0.02, 1.0) * seconds for _ in range(rng.choice([1, 2]))]
            survives(scenario, tmp_path / f"{world}-{number}", expected, delays)
