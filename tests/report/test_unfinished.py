"""Runs that have not ended: their report, and the page that follows them."""

import copy

import pytest

from edgefl.experiment import is_interrupted, run
from edgefl.record.events import Listener
from edgefl.record.metric import ACCURACY
from edgefl.report import comparison
from edgefl.report.page import live
from edgefl.report.page.live import LivePage
from edgefl.report.run_result import RunResult
from edgefl.report.unfinished import unfinished_run
from edgefl.scenario.loading import check

from ..small_runs import SMALL, Stop, tree

BOTH = check({**copy.deepcopy(SMALL), "methods": ["fedavg", {"method": "fedprox", "mu": 0.1}]})


class Pages(Listener):
    """Keeps the page after each round."""

    def __init__(self, file):
        self.file, self.texts = file, []

    def round_ended(self, row):
        self.texts.append(self.file.read_text("utf-8"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that was followed by a page, and the page after each round and at the end."""
    folder = tmp_path_factory.mktemp("whole")
    patch = pytest.MonkeyPatch()
    patch.setattr(live, "_LEAST", 0.0)
    patch.setattr(live, "_SHARE", 0)
    warned = []
    page = LivePage(folder / "live.html", folder / "run", lambda: ACCURACY, lambda: 61.0, warned.append)
    pages = Pages(folder / "live.html")
    run(BOTH, out=folder / "run", engine="sequential", listeners=[page, pages])
    page.ended()
    patch.undo()
    assert warned == []
    return folder / "run", pages.texts, pages.file.read_text("utf-8")


def test_the_rounds_of_a_stopped_run_are_those_of_the_whole_one(whole, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(BOTH, out=tmp_path / "run", engine="sequential", listeners=[Stop(3)])
    found, finished = unfinished_run(tmp_path / "run", lambda: ACCURACY), RunResult(whole[0])
    assert found.unfinished is not None
    assert found.unfinished[0] == "unfinished: 0 of 2 runs"
    ours, theirs = found.rounds_of("fedavg", 0).to_pydict(), finished.rounds_of("fedavg", 0).slice(0, 3).to_pydict()
    for name, values in theirs.items():
        if name in ("seconds", "metric", "accuracy_ema", "loss", "joules", "bytes_up", "client_bytes", "participants"):
            assert ours[name] == pytest.approx(values, rel=1e-12), name
    assert "after round 3 of 4" in comparison(found).text(80)


def test_finished_runs_are_shown_without_the_one_in_progress(whole, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(BOTH, out=tmp_path / "run", engine="sequential", listeners=[Stop(6)])
    assert is_interrupted(tmp_path / "run")
    found = unfinished_run(tmp_path / "run", lambda: ACCURACY)
    assert found.results["fedavg"] == RunResult(whole[0]).results["fedavg"]
    text = " ".join(comparison(found).text(80).split())
    assert "1 of 2 runs are complete; fedprox, seed 0, is after round 2 of 4" in text


def test_a_page_follows_a_run_and_becomes_its_report(whole):
    _, texts, last = whole
    assert len(texts) == 8
    assert all('http-equiv="refresh"' in each for each in texts)
    assert "fedavg, seed 0: round 1 of 4" in texts[0]
    assert "fedprox, seed 0: round 4 of 4" in texts[7]
    assert "61.0" in texts[3]
    assert "% computing" in texts[3]
    assert "<svg" in texts[3]
    assert "refresh" not in last
    assert 'id="statistics"' in last


def test_the_page_changes_no_byte_of_the_run(whole, tmp_path):
    run(BOTH, out=tmp_path / "run", engine="sequential")
    assert tree(tmp_path / "run") == tree(whole[0])


def test_a_page_that_cannot_be_written_is_reported_once(small, tmp_path):
    warned = []
    page = LivePage(tmp_path / "no" / "live.html", tmp_path / "run", lambda: ACCURACY, lambda: 1.0, warned.append)
    run(small(training__rounds=2), out=tmp_path / "run", train=False, listeners=[page])
    page.ended()
    assert len(warned) == 1
