"""Worker processes: new, independent of each other's calls, and ended with the process that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch

from edgefl.training.parallel.worker_pool import PoolBroken, shared_pool

pytestmark = pytest.mark.usefixtures("worker_processes")
LIMIT_SECONDS = 120


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(processes, seconds: float = 30) -> bool:
    until = time.monotonic() + seconds
    while any(map(alive, processes)) and time.monotonic() < until:
        time.sleep(0.01)
    return not any(map(alive, processes))


@pytest.fixture
def pool():
    found = shared_pool(3)
    found._first.result()
    return found


def taken(count):
    return partial(next, iter(range(count)), None)


def answers(pool, function, arguments, at_once=5):
    found = {}
    pool.each(taken(len(arguments)), lambda number: (function, (arguments[number],)), found.__setitem__, at_once)
    return [found[number] for number in sorted(found)]


@pytest.mark.full
def test_every_call_is_answered_by_a_worker_process(pool):
    under_way, most, found = set(), [], {}

    def call(number):
        under_way.add(number)
        most.append(len(under_way))
        return (lambda value: (value**2, os.getpid())), (number,)

    def done(number, answer):
        under_way.remove(number)
        found[number] = answer

    pool.each(taken(20), call, done, 5)
    assert {number: square for number, (square, _) in found.items()} == {number: number**2 for number in range(20)}
    workers = {process for _, process in found.values()}
    assert len(workers) <= 3
    assert os.getpid() not in workers
    assert max(most) == 5
    long = bytes(1_000_000)
    assert answers(pool, lambda request: request + b"!", [long] * 3) == [long + b"!"] * 3


@pytest.mark.full
def test_the_first_failure_is_raised_no_new_call_begins_and_the_pool_stays_usable(pool, tmp_path):
    def touch(number):
        (tmp_path / str(number)).touch()
        raise ValueError(f"{number} has no place here")

    with pytest.raises(ValueError, match="0 has no place here"):
        answers(pool, touch, range(40), at_once=3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2"]

    def done(number, answer):
        if number in (2, 5):
            raise KeyError(number)

    with pytest.raises(KeyError, match="2"):
        pool.each(taken(8), lambda number: (abs, (number,)), done, 8)
    assert answers(pool, abs, [-4, -5]) == [4, 5]


@pytest.mark.full
def test_worker_processes_compute_with_one_thread_ignore_ctrl_c_and_may_use_memory(pool):
    def told(_):
        allowed = os.environ["LOKY_MAX_MEMORY_LEAK_SIZE"]
        return torch.get_num_threads(), os.environ["OMP_NUM_THREADS"], allowed, signal.getsignal(signal.SIGINT)

    assert set(answers(pool, told, range(4))) == {(1, "1", "1e15", signal.SIG_IGN)}


@pytest.mark.full
def test_a_killed_worker_process_breaks_the_pool_and_the_next_pool_works(pool):
    with pytest.raises(PoolBroken, match="terminated"):
        answers(pool, lambda request: os.kill(os.getpid(), signal.SIGKILL), range(3))
    assert pool.broken
    with pytest.raises(PoolBroken):
        answers(pool, abs, [1])
    again = shared_pool(1)
    assert again is not pool
    again._first.result()
    assert answers(again, abs, [-2]) == [2]


@pytest.mark.full
def test_worker_processes_end_with_a_killed_parent_process():
    source = (
        "import os, time\nfrom functools import partial\n"
        "from edgefl.training.parallel.worker_pool import WorkerPool\n"
        "pool = WorkerPool(1); pool._first.result()\n"
        "pool.each(partial(next, iter([0]), None), lambda _: (os.getpid, ()), lambda _, me: print(me, flush=True), 1)\n"
        "pool.each(partial(next, iter([0]), None), lambda _: (time.sleep, (1000,)), print, 1)\n"
    )
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True) as process:
        workers = [int(process.stdout.readline())]
        assert all(map(alive, workers))
        process.kill()
    assert gone(workers)


@pytest.mark.full
def test_ctrl_c_while_worker_processes_start_ends_none_of_them():
    """And a program that fails ends at once, without waiting for calls under way."""
    source = (
        "import os, signal, time\nfrom functools import partial\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from edgefl.training.parallel.worker_pool import WorkerPool\n"
        "pool = WorkerPool(1)\n"
        "for _ in range(20): os.killpg(0, signal.SIGINT); time.sleep(0.02)\n"
        "pool._first.result(); pool.each(partial(next, iter([0]), None), lambda _: (abs, (-3,)), print, 1)\n"
        "pool._submit(time.sleep, (1000,))\n"
        "raise SystemExit('failed')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", source],
        capture_output=True, text=True, check=False, start_new_session=True, timeout=LIMIT_SECONDS,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (1, "0 3\n", "failed\n")
