"""Jobs that begin before their results are asked for: the same files, whatever becomes of them."""

from __future__ import annotations

import pytest

from edgefl.experiment import resume, run, verify
from edgefl.experiment.recorded_learner import RecordedLearner
from edgefl.learning.engine.crew import can_be_copied
from edgefl.learning.engine.learner import MethodLearner
from edgefl.learning.engine.parallel import ParallelEngine

from .conftest import CELLS, Stop, tree

pytestmark = pytest.mark.skipif(not can_be_copied(), reason="a process with an accelerator is not copied")

METHODS = ["fedavg", {"method": "fedadc", "overlap": True}, "fedbr", "scaffold"]
WORLDS = {
    "synchronous": {"methods": METHODS},
    "deadline": {"methods": ["fedavg", "fedbr"], "protocol": {"kind": "synchronous", "deadline": 0.08}},
    "partial": {
        "methods": ["fedavg"],
        "protocol": {"kind": "synchronous", "deadline": "0.2 s", "late": "partial"},
    },
    "asynchronous": {
        "methods": ["fedavg", "fedbr"],
        "protocol": {"kind": "asynchronous", "buffer": 2, "concurrency": 4},
    },
    "hierarchical": {
        "methods": ["fedavg", "scaffold"],
        "protocol": {"kind": "hierarchical"},
        "network__topology": CELLS,
    },
}


def with_copies(monkeypatch, *, from_the_first_job_on: bool) -> None:
    settled = 0.0 if from_the_first_job_on else None
    monkeypatch.setitem(ParallelEngine.__init__.__kwdefaults__, "settled", settled)


@pytest.fixture
def seen(monkeypatch) -> dict[str, int]:
    """How many jobs were begun early, how many of them in vain, and how many rounds were written while others train."""
    seen = {"begun": 0, "in vain": 0, "written meanwhile": 0}

    def counting(owner, name, what, condition=lambda *given: True):
        original = getattr(owner, name)

        def counted(self, *given):
            seen[what] += condition(self)
            return original(self, *given)

        monkeypatch.setattr(owner, name, counted)

    counting(ParallelEngine, "begin", "begun")
    counting(MethodLearner, "_in_vain", "in vain")
    counting(
        RecordedLearner, "_write", "written meanwhile", lambda self: bool(self._unwritten) and self._learner.at_work
    )
    return seen


@pytest.mark.parametrize("world", WORLDS)
def test_a_run_whose_jobs_begin_early_writes_the_same_files(small, tmp_path, monkeypatch, seen, world):
    scenario = small(training__rounds=12, **WORLDS[world])
    with_copies(monkeypatch, from_the_first_job_on=False)
    expected = tree(run(scenario, out=tmp_path / "expected", engine="parallel"))
    assert seen == {"begun": 0, "in vain": 0, "written meanwhile": 0}

    with_copies(monkeypatch, from_the_first_job_on=True)
    assert tree(run(scenario, out=tmp_path / "run", engine="parallel")) == expected
    assert seen["begun"] > 0
    if world == "synchronous":
        assert seen["in vain"] == 0
        assert seen["written meanwhile"] > len(METHODS)
    # One in vain is the last one of its run.
    assert seen["in vain"] <= 2 * len(scenario.methods)

    with pytest.raises(KeyboardInterrupt):
        run(scenario, out=tmp_path / "again", engine="parallel", progress=Stop(8))
    with pytest.raises(KeyboardInterrupt):
        resume(tmp_path / "again", progress=Stop(9))
    assert tree(resume(tmp_path / "again")) == expected
    assert verify(tmp_path / "again") == []
