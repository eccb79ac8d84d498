"""Ctrl-C at any moment: the process ends in order, with its own exit code, and says how to go on."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgefl.experiment import is_interrupted
from edgefl.scenario.writing import dump_yaml

from ..small_runs import SMALL

COMMAND = [sys.executable, "-c", "import sys; from edgefl.cli import main; sys.exit(main())"]


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


@pytest.mark.release
def test_ctrl_c_at_fifty_random_moments_ends_with_130_and_a_way_to_go_on(tmp_path):
    interrupt_at_random(tmp_path, times=50, seed=4)


def test_the_same_ctrl_c_twice_is_one(tmp_path):
    data = {**SMALL, "training": {**SMALL["training"], "rounds": 400}}
    scenario = tmp_path / "long.yaml"
    scenario.write_text(dump_yaml(data), encoding="utf-8")
    code, said = interrupt(scenario, tmp_path / "run", 0.2, again=0.005)
    assert code == 130
    assert "Traceback" not in said
