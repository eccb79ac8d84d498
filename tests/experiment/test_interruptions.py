"""Ctrl-C at any moment: the process ends in order, with its own exit code, and says how to go on."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from edgefl.experiment import is_interrupted
from edgefl.scenario.writing import dump_yaml
from edgefl.training.parallel import engine as parallel

from ..small_runs import SMALL

COMMAND = [sys.executable, "-c", "import sys; from edgefl.cli import main; sys.exit(main())"]


@pytest.mark.parametrize("interrupted", [0, 1])
def test_no_worker_outlives_a_ctrl_c_that_comes_while_one_is_being_started(monkeypatch, interrupted):
    """Such a worker, computing while the interpreter ends, would end the process by SIGABRT."""
    start, begun = threading.Thread.start, []

    def interrupting(thread):
        start(thread)
        begun.append(thread)
        if len(begun) == interrupted + 1:
            raise KeyboardInterrupt

    leaving, left = threading.Event(), []

    def worker(skeleton):
        leaving.wait(30)
        time.sleep(0.2)  # the rest of a local step
        left.append(skeleton)

    monkeypatch.setattr(threading.Thread, "start", interrupting)
    with pytest.raises(KeyboardInterrupt):
        parallel._side_by_side(worker, ["first", "second"], leaving)
    assert sorted(left) == ["first", "second"][: interrupted + 1]


@pytest.mark.usefixtures("ctrl_c_raises")
def test_no_worker_outlives_a_ctrl_c_that_comes_while_they_are_waited_for():
    leaving, left = threading.Event(), []

    def worker(skeleton):
        leaving.wait(30)
        time.sleep(0.8 if skeleton == "first" else 0.0)  # the rest of a local step
        left.append(skeleton)

    alarm = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    alarm.start()
    with pytest.raises(KeyboardInterrupt):
        parallel._side_by_side(worker, ["first", "second"], leaving)
    alarm.join()
    assert sorted(left) == ["first", "second"]


def test_a_worker_that_never_started_is_not_waited_for_long(monkeypatch):
    def never(thread):
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", never)
    monkeypatch.setattr(parallel, "_APPEARS_SECONDS", 0.01)
    with pytest.raises(KeyboardInterrupt):
        parallel._side_by_side(lambda skeleton: None, ["first", "second"], threading.Event())


def interrupt(scenario: Path, folder: Path, wait: float, again: float | None = None) -> tuple[int, str]:
    """Exit code and last words of a command that gets Ctrl-C ``wait`` seconds after its first round began."""
    arguments = ["simulate", str(scenario), "--engine", "parallel", "--out", str(folder)]
    with subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        patience = time.monotonic() + 120
        while not list(folder.rglob("journal.sqlite")) and time.monotonic() < patience:
            time.sleep(0.01)
        time.sleep(wait)
        process.send_signal(signal.SIGINT)
        if again is not None:
            time.sleep(again)
            process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=120)[1]
    return process.returncode, said


def interrupt_at_random(tmp_path: Path, times: int, seed: int) -> None:
    data = {**SMALL, "methods": ["fedavg", "scaffold"], "training": {**SMALL["training"], "rounds": 400}}
    scenario = tmp_path / "long.yaml"
    scenario.write_text(dump_yaml(data), encoding="utf-8")
    luck = random.Random(seed)
    for number in range(times):
        folder = tmp_path / f"run-{number}"
        code, said = interrupt(scenario, folder, luck.uniform(0, 1.5))
        assert (code, "Traceback" in said, "ignored" in said) == (130, False, False), said
        assert f"to continue: edgefl simulate --resume {folder}" in said
        assert is_interrupted(folder)


def test_ctrl_c_at_random_moments_ends_with_130_and_a_way_to_go_on(tmp_path):
    interrupt_at_random(tmp_path, times=3, seed=3)


@pytest.mark.slow
def test_ctrl_c_at_fifty_random_moments_ends_with_130_and_a_way_to_go_on(tmp_path):
    interrupt_at_random(tmp_path, times=50, seed=4)


def test_the_same_ctrl_c_twice_is_one(tmp_path):
    data = {**SMALL, "training": {**SMALL["training"], "rounds": 400}}
    scenario = tmp_path / "long.yaml"
    scenario.write_text(dump_yaml(data), encoding="utf-8")
    code, said = interrupt(scenario, tmp_path / "run", 0.2, again=0.005)
    assert code == 130
    assert "Traceback" not in said
