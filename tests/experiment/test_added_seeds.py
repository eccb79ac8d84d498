"""A finished run to which seeds are added has the bytes of a run that had all seeds from the start."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path

import pytest

from edgefl.errors import UserError
from edgefl.experiment import go_on, is_interrupted, resume, run
from edgefl.record import names
from edgefl.record.events import Listener
from edgefl.report import RunResult
from edgefl.rerun.verify import verify
from edgefl.scenario.loading import check

from ..small_runs import SMALL, Stop, tree

METHODS = ["scaffold", {"method": "fedadc", "overlap": True, "as": "overlapped"}]


class Runs(Listener):
    """Keeps the method and the seed of each run that begins."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, int]] = []

    def run_began(self, label, seed):
        self.begun.append((label, seed))


def scenario_with(seeds, **changes):
    data = {**copy.deepcopy(SMALL), "seeds": seeds, "methods": METHODS, "keep_models": "clients", **changes}
    data["training"] |= {"rounds": 2, "engine": {"kind": "sequential"}}
    return check(data)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Runs with the seed 4, and with 4, 5 and 6."""
    folder = tmp_path_factory.mktemp("seeds")
    return {len(seeds): run(scenario_with(seeds), out=folder / str(len(seeds))) for seeds in ([4], [4, 5, 6])}


@pytest.fixture
def small_run(finished, tmp_path):
    return Path(shutil.copytree(finished[1], tmp_path / "parent" / "run"))


def test_new_seeds_give_the_bytes_of_a_run_that_had_them_from_the_start(finished, small_run):
    assert tree(go_on(small_run, new_seeds=2)) == tree(finished[3])
    assert verify(small_run) == []


@pytest.mark.full
def test_the_present_runs_are_not_executed_again(small_run):
    runs = Runs()
    before = {path: path.stat().st_mtime_ns for path in small_run.rglob("seed-4/*")}
    go_on(small_run, new_seeds=1, listeners=[runs])
    assert runs.begun == [(label, 5) for label in ("scaffold", "overlapped")]
    assert {path: path.stat().st_mtime_ns for path in small_run.rglob("seed-4/*")} == before


@pytest.mark.full
@pytest.mark.parametrize("after", [3, pytest.param(1, marks=pytest.mark.full)])
def test_an_interrupted_extension_goes_on_and_the_former_result_stays_readable(finished, small_run, after):
    before = tree(small_run)
    with pytest.raises(KeyboardInterrupt):
        go_on(small_run, new_seeds=2, listeners=[Stop(after)])
    assert is_interrupted(small_run)
    assert RunResult(small_run).seeds == [4]
    assert verify(small_run) == []
    assert {name: content for name, content in tree(small_run).items() if name in before} == before
    with pytest.raises(UserError, match="contains an interrupted run; to continue: edgefl simulate --resume"):
        go_on(small_run, new_seeds=2)
    assert tree(resume(small_run)) == tree(finished[3])


@pytest.mark.full
def test_times_under_other_conditions_are_removed_with_the_former_summary(small_run):
    (small_run / names.SENSITIVITY).write_bytes(b"of one seed")
    go_on(small_run, new_seeds=1)
    assert not (small_run / names.SENSITIVITY).exists()


def refused(folder, *texts, **options):
    before = tree(folder)
    with pytest.raises(UserError) as error:
        go_on(folder, new_seeds=1, **options)
    for text in texts:
        assert text in str(error.value)
    assert tree(folder) == before


def test_what_cannot_be_extended_is_refused_and_stays_as_it_is(small_run, tmp_path):
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "expected the folder of a finished run, found no summary.json")
    summary = small_run / names.SUMMARY
    sound = summary.read_text(encoding="utf-8")
    summary.write_text(json.dumps({**json.loads(sound), "edgefl": "0.0.1"}), encoding="utf-8")
    refused(small_run, "was created by edgefl 0.0.1", "only the same version can extend it")
    summary.write_text(json.dumps({**json.loads(sound), "software": {"torch": "1.0"}}), encoding="utf-8")
    refused(small_run, "the run began with torch 1.0")
    summary.write_text(sound, encoding="utf-8")
    (small_run / names.FAULTED).write_text("{}", encoding="utf-8")
    refused(small_run, "has runs that ended by a fault; complete them before you extend it")
    (small_run / names.FAULTED).unlink()
    emulation = small_run / "scaffold" / "seed-4" / names.EMULATION
    emulation.write_text("{}", encoding="utf-8")
    refused(small_run, "is an emulation")
    emulation.unlink()
    scenario = small_run / names.SCENARIO
    scenario.write_text(scenario.read_text(encoding="utf-8").replace("lr: 0.1", "lr: 0.2"), encoding="utf-8")
    refused(small_run, "scenario.yaml: scenario: has changed since the run began")


@pytest.mark.parametrize("count", [0, -1, 1000 + 1])
def test_the_number_of_new_seeds_is_limited(small_run, count):
    with pytest.raises(UserError, match=f"expected 1 to {1000} new seeds, found {count}"):
        go_on(small_run, new_seeds=count)
