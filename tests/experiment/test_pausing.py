"""A run that is left and gone on with ends as one that was never left, and trains nothing twice."""

import pytest

from edgefl.experiment import resume, run
from edgefl.experiment.journal import Journal
from edgefl.experiment.pausing import Pause, Paused, read_pauses
from edgefl.record import RunPaths
from edgefl.record.listener import Listener
from edgefl.training.engines import sequential
from edgefl.training.local_training import train_job

METHODS = [{"method": "fedadc", "overlap": True}, pytest.param("fedbr", marks=pytest.mark.full)]


@pytest.fixture
def trained(monkeypatch):
    """The jobs that are trained, as they are trained."""
    seen = []

    def counting(task, *others, **options):
        seen.append((task.method, task.client, task.dispatch))
        return train_job(task, *others, **options)

    monkeypatch.setattr(sequential, "train_job", counting)
    return seen


@pytest.mark.parametrize("method", METHODS, ids=["fedadc", "fedbr"])
def test_a_run_that_was_left_twice_comes_to_the_same_bytes(small, tmp_path, trained, method):
    scenario = small(methods=[method], training__rounds=5)
    run(scenario, out=tmp_path / "whole", engine="sequential")
    jobs, trained[:] = sorted(trained), []
    with pytest.raises(Paused):
        run(scenario, out=tmp_path / "left", engine="sequential", pause=Pause(rounds=1))
    with pytest.raises(Paused):
        resume(tmp_path / "left", pause=Pause(rounds=3))
    resume(tmp_path / "left")
    label = scenario.methods[0].label
    for name in ("summary.json", f"{label}/seed-0/rounds.parquet", f"{label}/seed-0/events.parquet"):
        assert (tmp_path / "left" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert sorted(trained) == jobs


def test_a_round_is_on_disk_before_a_listener_follows_it_and_a_pause_comes_last(small, tmp_path):
    paths, seen = RunPaths(tmp_path / "left").of("fedavg", 0), []

    class Seen(Listener):
        def run_began(self, label, seed):
            seen.append((label, seed))

        def events(self, rows):
            seen.extend({event.round for event in rows if event.kind == "round_end"})

        def round_ended(self, row):
            with Journal(paths.journal) as journal:
                assert journal.rounds == row.round
            seen.append(row)

    with pytest.raises(Paused):
        run(small(), out=tmp_path / "left", engine="sequential", listeners=[Seen()], pause=Pause(rounds=2))
    begin, *rounds = seen
    assert begin == ("fedavg", 0)
    assert [each if isinstance(each, int) else each.round for each in rounds] == [1, 1, 2, 2]
    assert [path.name for path in paths.checkpoints.glob("*.json")] == ["round-000002.json"]


def test_a_run_is_left_at_the_first_round_that_reaches_the_seconds(small, tmp_path):
    with pytest.raises(Paused):
        run(small(), out=tmp_path / "left", engine="sequential", pause=Pause(seconds=1e-9))
    (figures,) = read_pauses(RunPaths(tmp_path / "left").of("fedavg", 0).pauses).values()
    assert (figures["rounds"], figures["stop"]) == (1, "paused")


def test_a_run_that_is_over_before_its_pause_ends_as_usual(small, tmp_path):
    run(small(training__rounds=2), out=tmp_path / "run", engine="sequential", pause=Pause(rounds=2))
    assert (tmp_path / "run" / "summary.json").exists()
