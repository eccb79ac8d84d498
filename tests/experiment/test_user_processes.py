"""Processes that are not set up as CI is: scripts, notebooks and shells, with threads in use before anything trains."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgefl.scenario.writing import dump_yaml
from edgefl.training.processors import cores

from ..small_runs import SMALL

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(cores() < 2, reason="one core: engines train one job after another"),
]

LONG = 240
"""Seconds after which a process is taken to hang; it takes ten on a quiet machine, most of them for importing torch."""

BEFORE = "import torch; product = torch.rand(1500, 1500) @ torch.rand(1500, 1500); product.sort()\n"
"""As in a notebook: OpenMP's and MKL's threads exist from here on, as many as there are cores."""

SCRIPT = (
    BEFORE
    + """
import sys, threading
from pathlib import Path
import edgefl
from edgefl.training.parallel import engine as parallel
from edgefl.training.parallel.pool_training import PoolTraining
from edgefl.training.processors import cores
from edgefl.training.parallel.worker_pool import shared_pool
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.methods.fedavg import CrossEntropy
from edgefl.methods.parts.local_rule import Sgd
from edgefl.methods.fedavg import Mean

class Half(CrossEntropy):
    "A loss of the script's own."
    def loss(self, *given):
        found = super().loss(*given)
        return found._replace(total=found.total * 0.5)

METHODS.register("half")(Recipe(summary="-", paper="-", objective=Half, rule=Sgd, server=Mean()))
jobs, train = [], PoolTraining.train
PoolTraining.train = lambda self, tasks, *rest: (jobs.append(len(tasks)), train(self, tasks, *rest))[1]
place = Path(sys.argv[1])

def simulate(name, engine):
    edgefl.simulate(sys.argv[2], out=place / name, methods=["fedavg", "half"], engine=engine)

def in_a_thread(name):
    thread = threading.Thread(target=simulate, args=(name, "parallel"))
    thread.start()
    thread.join()

simulate("expected", "sequential")
in_a_thread("threads")
parallel.ParallelEngine.__init__.__kwdefaults__["settled"] = 0
shared_pool(cores()).wait()
in_a_thread("first")
(place / "halfway").touch()
in_a_thread("second")
finals = ["/".join([label, "seed-0", "final.safetensors"]) for label in ("fedavg", "half")]
def read(name): return [(place / name / final).read_bytes() for final in finals]
print(sum(jobs) > 30, all(read(name) == read("expected") for name in ("threads", "first", "second")))
"""
)


FORKLESS = """
import os, sys
os.register_at_fork(before=lambda: (print("this process was forked", file=sys.stderr, flush=True), os._exit(86)))
"""
"""A fork ends the process, where the copy would wait for ever for threads that it does not have."""


def bare(**threads: str) -> dict[str, str]:
    """An ordinary shell's environment, with nothing that a test or CI sets."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH", "EDGEFL_DATA") if name in os.environ}
    return {**kept, **threads}


@pytest.fixture
def scenario(tmp_path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(dump_yaml({**SMALL, "methods": ["fedavg", "half"]}), encoding="utf-8")
    return path


def test_an_unguarded_script_that_used_threads_trains_with_worker_processes_from_other_threads(tmp_path, scenario):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    told = subprocess.run(
        [sys.executable, str(script), str(tmp_path), str(scenario)],
        capture_output=True, text=True, check=False, timeout=LONG, env=bare(),
    )  # fmt: skip
    # Rarely, loky's tracker of semaphores is told at exit of one that is removed already.
    noise = [
        line for line in told.stderr.splitlines() if "resource_tracker" not in line and "warnings.warn(" not in line
    ]
    assert (told.stdout, noise) == ("True True\n", [])


def test_worker_processes_of_a_killed_run_vanish_and_hold_nothing(tmp_path, scenario):
    script = tmp_path / "script.py"
    script.write_text(
        SCRIPT.replace('in_a_thread("second")', "import time; print(*workers(), flush=True); time.sleep(600)").replace(
            "place = Path", "def workers(): return shared_pool(cores())._executor._processes\nplace = Path"
        ),
        encoding="utf-8",
    )
    with subprocess.Popen(
        [sys.executable, str(script), str(tmp_path), str(scenario)], stdout=subprocess.PIPE, text=True, env=bare()
    ) as process:
        workers = [int(word) for word in process.stdout.readline().split()]
        assert len(workers) == cores()
        for worker in workers:
            held = [os.readlink(each) for each in Path(f"/proc/{worker}/fd").iterdir()]
            assert not [each for each in held if str(tmp_path) in each]
        process.kill()
    patience = time.monotonic() + 30
    while any(Path(f"/proc/{worker}").exists() for worker in workers) and time.monotonic() < patience:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)
