"""A run that was killed goes on to the same bytes as one that was not."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgefl.errors import UserError
from edgefl.experiment import is_interrupted, resume, run, verify
from edgefl.experiment.directory import Choices, RunDirectory
from edgefl.experiment.journal import LogDiffers
from edgefl.scenario.writing import dump_yaml

from .conftest import SMALL

METHODS = ["fedavg", {"method": "fedadc", "overlap": True}, "fedbr", "scaffold"]
PROTOCOLS = {
    "synchronous": {"kind": "synchronous"},
    "deadline": {"kind": "synchronous", "deadline": 0.08},
    "asynchronous": {"kind": "asynchronous", "buffer": 2, "concurrency": 4},
}


def tree(folder: Path) -> dict[str, bytes]:
    """Every file of a run directory."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


class Interrupted(Exception):  # noqa: N818
    """Stands for Ctrl-C."""


class Stop:
    """A progress listener that raises at the n-th round that it hears of."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def begin(self, runs, rounds): ...

    def round(self, label, seed, round, seconds, accuracy):
        self.rounds -= 1
        if self.rounds == 0:
            raise Interrupted

    def end(self, label, seed, reason): ...

    def close(self): ...


def methods_for(protocol: str) -> list:
    return ["fedavg", "fedbr"] if protocol == "asynchronous" else METHODS


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The same runs without any interruption, by protocol."""
    from edgefl.scenario.loading import check

    def finished(protocol):
        data = {**SMALL, "methods": methods_for(protocol), "protocol": PROTOCOLS[protocol], "seeds": [0, 1]}
        data["training"] = {**SMALL["training"], "rounds": 13}
        scenario = check(data)
        return scenario, run(scenario, out=tmp_path_factory.mktemp(protocol) / "run")

    return {protocol: finished(protocol) for protocol in PROTOCOLS}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("after", [1, 9, 11, 25, 37])
def test_a_resumed_run_is_byte_identical(uninterrupted, tmp_path, protocol, after):
    scenario, expected = uninterrupted[protocol]
    folder = tmp_path / "run"
    with pytest.raises(Interrupted):
        run(scenario, out=folder, progress=Stop(after))
    assert is_interrupted(folder)
    # Twice: the second process is interrupted as well, two rounds later.
    with pytest.raises(Interrupted):
        resume(folder, progress=Stop(2))
    assert tree(resume(folder)) == tree(expected)
    assert verify(folder) == []


def test_up_to_the_checkpoint_nothing_is_trained_again(small, tmp_path, monkeypatch):
    from edgefl.learning.engine import learner

    scenario = small(training__rounds=13)
    with pytest.raises(Interrupted):
        run(scenario, out=tmp_path / "run", progress=Stop(12))
    trained = []
    train = learner.MethodLearner.aggregate
    monkeypatch.setattr(
        learner.MethodLearner, "aggregate", lambda self, v, *rest: (trained.append(v), train(self, v, *rest))[1]
    )
    resume(tmp_path / "run")
    assert trained == [10, 11, 12]


def test_a_damaged_checkpoint_falls_back_to_an_older_one_or_to_none(uninterrupted, tmp_path):
    scenario, expected = uninterrupted["synchronous"]
    folder = tmp_path / "run"
    with pytest.raises(Interrupted):
        run(scenario, out=folder, progress=Stop(12))
    blobs = list(folder.rglob("checkpoints/*.safetensors"))
    assert blobs
    for path in blobs:
        path.write_bytes(path.read_bytes()[:-3])
    assert tree(resume(folder)) == tree(expected)


def test_a_journal_that_differs_stops_the_run(small, tmp_path):
    with pytest.raises(Interrupted):
        run(small(training__rounds=13), out=tmp_path / "run", progress=Stop(12))
    journal = sqlite3.connect(tmp_path / "run/fedavg/seed-0/journal.sqlite")
    row = json.loads(journal.execute("SELECT row FROM events WHERE position = 20").fetchone()[0])
    row[0] += 1.0
    journal.execute("UPDATE events SET row = ? WHERE position = 20", (json.dumps(row),))
    journal.commit()
    journal.close()
    with pytest.raises(LogDiffers, match="event 20"):
        resume(tmp_path / "run")


def test_a_finished_run_cannot_be_resumed_and_an_empty_folder_neither(small, tmp_path):
    folder = run(small(), out=tmp_path / "run", train=False)
    with pytest.raises(UserError, match="finished"):
        resume(folder)
    with pytest.raises(UserError, match="nothing to resume"):
        resume(tmp_path)


def test_two_processes_do_not_share_a_directory(small, tmp_path):
    scenario = small()
    with RunDirectory(tmp_path / "run", Choices(("fedavg",), "auto", "auto", True)) as taken:
        taken.open(dump_yaml({}))
        with pytest.raises(UserError, match="another process"):
            run(scenario, out=tmp_path / "run")
        assert is_interrupted(tmp_path / "run")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "import sys; from edgefl.cli import main; sys.exit(main())", *arguments]


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_process_can_be_resumed_from_the_command_line(uninterrupted, tmp_path, stop):
    _, expected = uninterrupted["synchronous"]
    folder = tmp_path / "run"
    scenario = str(expected / "scenario.yaml")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command("simulate", scenario, "--out", str(folder)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        waited = time.monotonic() + 120
        while not list(folder.rglob("checkpoints/round-*.json")) and time.monotonic() < waited:
            time.sleep(0.01)
        process.send_signal(stop)
        said = process.communicate()[1]
    assert process.returncode == (-stop if stop == signal.SIGKILL else 128 + stop)
    if stop != signal.SIGKILL:
        assert f"edgefl simulate --resume {folder}" in said
    again = subprocess.run(
        command("simulate", scenario, "--out", str(folder)),
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert again.returncode == 2
    assert "--resume" in again.stderr
    done = subprocess.run(
        command("simulate", "--resume", str(folder), "--json"),
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found, wanted = tree(folder), tree(expected)
    found.pop("accuracy.png")
    assert found == wanted
    assert done.stdout == wanted["summary.json"].decode()
