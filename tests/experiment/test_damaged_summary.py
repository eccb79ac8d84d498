"""A summary that is empty or cut short, as a power failure may leave one of an older edgefl, counts as none."""

from __future__ import annotations

import pytest

from edgefl.errors import UserError
from edgefl.experiment import resume, run
from edgefl.record.summary import is_summary
from edgefl.scenario.loading import check
from edgefl.sweep.jobs import Job
from edgefl.sweep.table import figures_by_method, is_done

from ..small_runs import SMALL


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run(check(SMALL), out=tmp_path_factory.mktemp("summary") / "run", train=False)


@pytest.fixture
def cut(finished):
    path = finished / "summary.json"
    content = path.read_bytes()
    yield lambda length: path.write_bytes(content[:length])
    path.write_bytes(content)


def test_a_summary_cut_anywhere_is_none(finished, cut):
    path = finished / "summary.json"
    assert is_summary(path)
    for length in range(len(path.read_bytes().rstrip())):
        cut(length)
        assert not is_summary(path)


@pytest.mark.parametrize("content", ["", "null", "[]", "{}", '{"methods": []}', "\0" * 100])
def test_a_file_of_other_content_is_none(tmp_path, content):
    (tmp_path / "summary.json").write_text(content)
    assert not is_summary(tmp_path / "summary.json")


@pytest.mark.parametrize("length", [0, 100])
def test_a_job_whose_summary_is_damaged_is_not_done_and_has_no_figures(finished, cut, length):
    job = Job("job", {}, 0, SMALL, ("fedavg",), "cpu", train=False)
    assert is_done(job, finished)
    assert figures_by_method(job, finished).keys() == {"fedavg"}
    cut(length)
    assert not is_done(job, finished)
    assert figures_by_method(job, finished) == {}


def test_resumption_says_that_the_summary_is_damaged(finished, cut):
    with pytest.raises(UserError, match="nothing to resume: its run is finished"):
        resume(finished)
    cut(0)
    with pytest.raises(UserError, match=r"nothing to resume: summary\.json is damaged"):
        resume(finished)
