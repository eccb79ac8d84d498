"""The commands in processes of their own with PyTorch's default threads, all in use before anything trains.

A fork after that would wait without end for threads that the copy lacks; it ends the process here.
"""

import os
import signal
import subprocess
import sys
import time

import pyarrow.parquet as pq
import pytest

from edgefl.report import RunResult
from edgefl.yaml_file import dump_yaml

from ..small_runs import SMALL, tree

LIMIT_SECONDS = 240
"""A process that takes this long hangs; it takes ten seconds on a quiet machine, half of them for importing PyTorch."""

USED = """
import os, sys, torch
product = torch.rand(1500, 1500) @ torch.rand(1500, 1500); product.sort()
os.register_at_fork(before=lambda: (print("this process was forked", file=sys.stderr, flush=True), os._exit(86)))
from edgefl.training.engines import parallel
parallel.SETTLED_SECONDS = 0  # worker processes start at once
"""
COMMAND = USED + "from edgefl.cli import main; sys.exit(main())"
CELLS = """
import threading, edgefl
from edgefl.training.parallel.worker_pool import shared_pool
from edgefl.hardware import cores
def cell(out):
    edgefl.simulate("small.yaml", out=out, engine="parallel")
    shared_pool(cores())._first.result()  # it trains from here on
for out in ("first", "second"):
    thread = threading.Thread(target=cell, args=(out,))
    thread.start()
    thread.join()
"""


def started(folder, code, *arguments):
    # As in a user's shell; nothing of a test runner's.
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH", "EDGEFL_DATA") if name in os.environ}
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=folder, env=kept, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def ends(folder, code, *arguments):
    with started(folder, code, *arguments) as process:
        try:
            told, wrong = process.communicate(timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert process.returncode == 0, told + wrong
    return told


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """A folder with a scenario and its finished run."""
    folder = tmp_path_factory.mktemp("fresh")
    training = {**SMALL["training"], "rounds": 3, "engine": {"kind": "parallel"}}
    (folder / "small.yaml").write_text(dump_yaml({**SMALL, "training": training}), encoding="utf-8")
    ends(folder, COMMAND, "simulate", "small.yaml", "--out", "run")
    return folder


def test_simulate(simulated):
    assert len(RunResult(simulated / "run").rounds) == 3


def test_resume_after_a_kill(simulated):
    with started(simulated, COMMAND, "simulate", "small.yaml", "--out", "killed") as process:
        deadline = time.monotonic() + LIMIT_SECONDS
        while not any(simulated.glob("killed/fedavg/seed-0/*")):
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    ends(simulated, COMMAND, "simulate", "--resume", "killed")
    assert tree(simulated / "killed") == tree(simulated / "run")


@pytest.mark.full
def test_sweep(simulated):
    ends(simulated, COMMAND, "sweep", "small.yaml", "--grid", "training.local.lr=0.05,0.1", "--out", "sweep")
    assert pq.read_table(simulated / "sweep" / "sweep.parquet").num_rows == 2


@pytest.mark.full
def test_a_notebook_whose_cells_run_in_threads(simulated):
    ends(simulated, USED + CELLS)
    expected = tree(simulated / "run")
    del expected["accuracy.png"]
    assert tree(simulated / "first") == tree(simulated / "second") == expected
