"""Interrupted runs."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgefl.experiment import is_interrupted, resume, run
from edgefl.experiment.journal import Journal
from edgefl.record import RunPaths
from edgefl.record.events import Listener
from edgefl.training.engines import sequential
from edgefl.training.engines.sequential import train_job
from edgefl.yaml_file import dump_yaml

from ..small_runs import ACCIDENTS, SMALL, Stop

COMMAND = [sys.executable, "-c", "import sys; from edgefl.cli import main; sys.exit(main())"]


def test_head_ends_a_command_quietly():
    """As ``edgefl scenario list | head -n 0``: nobody reads what the command writes."""
    with subprocess.Popen([*COMMAND, "scenario", "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def interrupt(scenario: Path, folder: Path, wait: float, again: float | None = None) -> tuple[int, str]:
    """Exit code and last words of a command that gets Ctrl-C ``wait`` seconds after its first round began."""
    arguments = ["simulate", str(scenario), "--engine", "parallel", "--out", str(folder)]
    with subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        patience = time.monotonic() + 120
        while not list(folder.rglob("journal.arrow")) and time.monotonic() < patience:
            time.sleep(0.01)
        time.sleep(wait)
        process.send_signal(signal.SIGINT)
        if again is not None:
            time.sleep(again)
            process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=120)[1]
    return process.returncode, said


@pytest.mark.parametrize(
    ("times", "again"),
    [
        pytest.param(1, None, marks=pytest.mark.full),
        pytest.param(1, 0.005, marks=pytest.mark.release),
        pytest.param(50, None, marks=pytest.mark.release),
    ],
    ids=["once", "the same twice", "fifty times"],
)
def test_ctrl_c_at_a_random_moment_ends_with_130_and_a_way_to_go_on(tmp_path, times, again):
    data = {**SMALL, "methods": ["fedavg", "scaffold"], "training": {**SMALL["training"], "rounds": 400}}
    scenario = tmp_path / "long.yaml"
    scenario.write_text(dump_yaml(data), encoding="utf-8")
    rng = random.Random(times)
    for number in range(times):
        folder = tmp_path / f"run-{number}"
        code, said = interrupt(scenario, folder, rng.uniform(0, 1.5), again)
        assert (code, "Traceback" in said, "ignored" in said) == (130, False, False), said
        if again is None:
            assert f"to continue: edgefl simulate --resume {folder}" in said
            assert is_interrupted(folder)


KEPT = {"method": "fedavg", "local": {"optimizer": {"kind": "adamw", "state": "keep"}, "lr": 0.01}}
CENTRAL = {**KEPT, "method": "central", "profile": "laptop-8-core"}
METHODS = [{"method": "fedadc", "overlap": True}, KEPT, CENTRAL, pytest.param("fedbr", marks=pytest.mark.full)]


@pytest.fixture
def trained(monkeypatch):
    """The jobs that are trained, as they are trained."""
    seen = []

    def counting(task, *others, **options):
        seen.append((task.method, task.client, task.dispatch))
        return train_job(task, *others, **options)

    monkeypatch.setattr(sequential, "train_job", counting)
    return seen


@pytest.mark.parametrize("method", METHODS, ids=["fedadc", "kept optimizer", "central", "fedbr"])
def test_a_run_that_was_left_twice_comes_to_the_same_bytes(small, tmp_path, trained, method, monkeypatch):
    monkeypatch.setattr("edgefl.experiment.checkpoints.CHECKPOINT_EVERY", 1)
    scenario = small(methods=[method], training__rounds=5, **(ACCIDENTS if method is KEPT else {}))
    run(scenario, out=tmp_path / "whole", engine="sequential")
    jobs, trained[:] = sorted(trained), []
    with pytest.raises(KeyboardInterrupt):
        run(scenario, out=tmp_path / "left", engine="sequential", listeners=[Stop(1)])
    with pytest.raises(KeyboardInterrupt):
        resume(tmp_path / "left", listeners=[Stop(3)])
    resume(tmp_path / "left")
    label = scenario.methods[0].label
    for name in ("summary.json", f"{label}/seed-0/rounds.parquet", f"{label}/seed-0/events.parquet"):
        assert (tmp_path / "left" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert sorted(trained) == jobs


def test_a_round_is_on_disk_before_a_listener_follows_it(small, tmp_path):
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

    with pytest.raises(KeyboardInterrupt):
        run(small(), out=tmp_path / "left", engine="sequential", listeners=[Seen(), Stop(2)])
    begin, *rounds = seen
    assert begin == ("fedavg", 0)
    assert [each if isinstance(each, int) else each.round for each in rounds] == [1, 1, 2, 2]
