"""Killed at any system call, or cut off by a power failure at any: the run goes on to the bytes of one that was not."""

from __future__ import annotations

import copy
import json
import multiprocessing
import random
import signal
from pathlib import Path

import pytest

import edgefl
from edgefl.experiment import is_interrupted, resume, resuming
from edgefl.record import names
from edgefl.rerun.verify import verify
from edgefl.scenario.writing import dump_yaml

from ..small_runs import SMALL, tree
from .crashes import CUT_OFF, cut_off_at, kill_at, kill_before_results_are_removed, note_calls

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["edgefl.api", "edgefl.training.core", "edgefl.experiment"])


def run_or_resume(scenario: str, folder: Path, prepare, *arguments) -> None:
    resuming.CHECKPOINT_EVERY = 1
    if prepare is not None:
        prepare(folder.parent, *arguments)
    if is_interrupted(folder):
        resume(folder)
    else:
        edgefl.simulate(scenario, out=str(folder))


def exit_code(scenario: Path, folder: Path, prepare=None, *arguments) -> int:
    folder.parent.mkdir(exist_ok=True)
    child = CONTEXT.Process(target=run_or_resume, args=(str(scenario), folder, prepare, *arguments))
    child.start()
    child.join()
    return child.exitcode


class Undisturbed:
    """The run that nothing happens to: two methods that share results of training, two seeds, many checkpoints."""

    def __init__(self, folder: Path) -> None:
        data = copy.deepcopy(SMALL)
        data["data"] |= {"train": 160, "test": 40}
        data["training"] |= {"rounds": 3, "engine": {"kind": "sequential"}}
        overlapped = {"method": "fedadc", "overlap": True, "as": "overlapped"}
        data |= {"seeds": [0, 1], "methods": ["fedadc", overlapped], "keep_models": "clients"}
        self.scenario = folder / "scenario.yaml"
        self.scenario.write_text(dump_yaml(data), encoding="utf-8")
        self.run = folder / "undisturbed" / "run"
        assert exit_code(self.scenario, self.run, note_calls, folder / "calls") == 0
        self.calls = (folder / "calls").read_text(encoding="utf-8").split()
        assert verify(self.run) == []


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return Undisturbed(tmp_path_factory.mktemp("crashes"))


def goes_on(undisturbed: Undisturbed, folder: Path) -> None:
    if is_interrupted(folder) or not (folder / "summary.json").exists():
        assert exit_code(undisturbed.scenario, folder) == 0
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    found, wanted = tree(folder), tree(undisturbed.run)
    assert sorted(found) == sorted(wanted)
    assert [name for name in wanted if found[name] != wanted[name]] == []
    folders = {path.relative_to(folder) for path in folder.rglob("*") if path.is_dir()}
    assert folders == {path.relative_to(undisturbed.run) for path in undisturbed.run.rglob("*") if path.is_dir()}


def survives_kills(undisturbed: Undisturbed, folder: Path, numbers: list[int]) -> None:
    for number in numbers:
        ended = exit_code(undisturbed.scenario, folder, kill_at, number)
        assert ended in {-signal.SIGKILL, 0}
        if ended == 0:  # a resumed run makes fewer calls
            break
    goes_on(undisturbed, folder)


def survives_power_loss(undisturbed: Undisturbed, folder: Path, number: int, chance: float) -> None:
    lost = folder.parent.with_name(f"{folder.parent.name}-lost")
    ended = exit_code(undisturbed.scenario, folder, cut_off_at, number, chance, lost)
    # A checkpoint that is complete early saves a call, so the last numbers may not be reached.
    assert ended == CUT_OFF or (ended == 0 and number > 0.95 * len(undisturbed.calls))
    goes_on(undisturbed, lost / folder.name if ended == CUT_OFF else folder)


def spread(calls: list[str], count: int, seed: int) -> list[int]:
    """Numbers of calls: of each kind in turn, at random."""
    rng, by_kind = random.Random(seed), {}
    for number, kind in enumerate(calls):
        by_kind.setdefault(kind, []).append(number)
    kinds = sorted(by_kind)
    return [rng.choice(by_kind[kinds[place % len(kinds)]]) for place in range(count)]


def test_the_run_makes_every_kind_of_call_many_times(undisturbed):
    count = {kind: undisturbed.calls.count(kind) for kind in set(undisturbed.calls)}
    assert set(count) == {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "flush", "sqlite"}
    assert count["flush"] > count["os.rename"] > 30
    assert len(undisturbed.calls) > 200


def test_a_kill_at_a_call_of_each_kind_changes_nothing(undisturbed, tmp_path):
    for place, number in enumerate(spread(undisturbed.calls, 7, seed=1)):
        survives_kills(undisturbed, tmp_path / f"{place}-{number}" / "run", [number])


def test_a_kill_at_any_of_the_last_calls_changes_nothing(undisturbed, tmp_path):
    """Where everything is finished, and what is needed to go on is being removed."""
    for number in range(len(undisturbed.calls) - 5, len(undisturbed.calls)):
        survives_kills(undisturbed, tmp_path / str(number) / "run", [number])


@pytest.mark.parametrize("removal", range(3))
def test_a_kill_before_the_shared_results_are_removed_leaves_none(undisturbed, tmp_path, removal):
    """After the first seed's last run, after the second's, and when everything is finished."""
    folder = tmp_path / "killed" / "run"
    assert exit_code(undisturbed.scenario, folder, kill_before_results_are_removed, removal) == -signal.SIGKILL
    assert is_interrupted(folder)
    state = json.loads((folder / names.STATE).read_text(encoding="utf-8"))
    assert len(state["finished"]) == (2 if removal == 0 else 4)
    assert (folder / names.RESULTS).is_dir() == (removal < 2)
    goes_on(undisturbed, folder)


def test_a_power_loss_at_a_call_of_each_kind_changes_nothing(undisturbed, tmp_path):
    for place, number in enumerate([*spread(undisturbed.calls, 7, seed=2), len(undisturbed.calls) - 1]):
        chance = (0.0, 1.0, 0.5)[place % 3]
        survives_power_loss(undisturbed, tmp_path / f"{place}-{number}" / "run", number, chance)


@pytest.mark.slow
def test_a_kill_at_any_call_changes_nothing(undisturbed, tmp_path):
    rng = random.Random(3)
    for number in range(len(undisturbed.calls)):
        again = [rng.randrange(150)] if number % 3 == 0 else []
        survives_kills(undisturbed, tmp_path / str(number) / "run", [number, *again])


@pytest.mark.slow
@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
def test_a_power_loss_at_any_flush_changes_nothing(undisturbed, tmp_path, chance):
    for number in [number for number, kind in enumerate(undisturbed.calls) if kind == "flush"]:
        survives_power_loss(undisturbed, tmp_path / str(number) / "run", number, chance)
