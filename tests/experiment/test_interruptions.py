"""Interrupted runs."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgefl.experiment import is_interrupted, run
from edgefl.experiment.journal import Journal
from edgefl.record import RunPaths
from edgefl.record.events import Listener
from edgefl.yaml_file import dump_yaml

from ..small_runs import SMALL, Stop

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
