"""Copies of the process that it forks itself (``os.fork``, ``multiprocessing``) train without its worker processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import traceback

import pytest

from edgefl.methods.objectives.cross_entropy import CrossEntropy
from edgefl.process_state import process_state_kept
from edgefl.training.faults import blaming
from edgefl.training.parallel import worker_pool
from edgefl.training.parallel.worker_pool import PoolBroken, ready_pool, shared_pool

from .test_engine_agreement import same, three_rounds

pytestmark = [
    pytest.mark.usefixtures("worker_processes"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]

LIMIT_SECONDS = 120


def exit_code_in_a_copy(function):
    """0: the function returned true in a forked copy of this process; negative: it hung and was killed."""
    process = os.fork()
    if not process:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(LIMIT_SECONDS)
            os._exit(0 if function() else 1)
        except BaseException:  # noqa: BLE001  (it must not go on as a second pytest)
            traceback.print_exc()
        finally:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("of", ["its own engine", "the parent's engine"])
def test_a_copy_of_a_process_that_used_worker_processes_trains(tiny, of):
    method = tiny.method("fedavg")
    reference = three_rounds(tiny.core("sequential"), method)
    core = tiny.core("parallel", 2)
    shared_pool(2).wait()
    assert same(reference, three_rounds(core, method))

    def trains():
        return same(reference, three_rounds(core if of == "the parent's engine" else tiny.core("parallel", 2), method))

    assert exit_code_in_a_copy(trains) == 0
    assert same(reference, three_rounds(core, method))
    assert not shared_pool(2).broken
    core.close()


def test_a_copy_does_not_use_the_pool_of_its_parent():
    pool = shared_pool(2)
    pool.wait()

    def refuses():
        try:
            pool.each([(0, (abs, (-1,)))], print, 1)
        except PoolBroken:
            pool.close()
            return ready_pool(2) is None
        return False

    assert exit_code_in_a_copy(refuses) == 0
    found = {}
    pool.each([(0, (abs, (-1,)))], found.__setitem__, 1)
    assert found == {0: 1}


def test_a_copy_does_not_wait_for_a_lock_that_another_thread_of_its_parent_held():
    with worker_pool._lock:
        assert exit_code_in_a_copy(lambda: ready_pool(2) is None) == 0


def test_a_call_whose_executor_has_ended_is_not_waited_for_for_ever(monkeypatch):
    pool = shared_pool(2)
    pool.wait()
    monkeypatch.setattr(worker_pool, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(pool, "_executor", type("Ended", (), {"_executor_manager_thread": threading.Thread()})())
    with pytest.raises(PoolBroken, match="closed"):
        pool._next(worker_pool.SimpleQueue(), None)


def test_a_process_of_multiprocessing_ends_its_own_worker_processes():
    """It would wait for them until they end for want of work."""
    shared_pool(2).wait()
    process = multiprocessing.get_context("fork").Process(target=lambda: shared_pool(1).wait())
    process.start()
    process.join(0.75 * worker_pool._IDLE_SECONDS)
    ended = process.exitcode
    process.kill()
    assert ended == 0


class Exiting(CrossEntropy):
    """Forks a copy of the process in its loss, which does not end itself."""

    def loss(self, *arguments):
        if (process := os.fork()) == 0:
            sys.exit(7)
        found = super().loss(*arguments)
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 7
        return found


ENDS = {
    "exits": (lambda: sys.exit(7), 7),
    "exits with words": (lambda: sys.exit("no"), 1),
    "exits without a code": (sys.exit, 0),
    "raises": (lambda: {}["lost"], 1),
    "is interrupted": (lambda: signal.raise_signal(signal.SIGINT), 1),
    "goes on": (lambda: None, 0),
}
BLOCKS = {"a part's call": lambda: blaming("mine", 0, "loss"), "a method's run": process_state_kept}


@pytest.mark.usefixtures("ctrl_c_raises")
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("end", ENDS)
def test_a_copy_that_a_part_forks_ends_with_the_block(block, end):
    parent, (act, code) = os.getpid(), ENDS[end]
    try:
        with BLOCKS[block]():
            process = os.fork()
            if not process:
                act()
    finally:
        if os.getpid() != parent:
            os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == code


def test_a_copy_that_a_loss_forks_ends_with_the_job(tiny):
    parent, method = os.getpid(), tiny.method("fedavg")
    reference = three_rounds(tiny.core("sequential"), method)
    object.__setattr__(method, "objective", Exiting())
    try:
        found = three_rounds(tiny.core("sequential"), method)
    finally:
        if os.getpid() != parent:
            os._exit(99)
    assert same(reference, found)


def test_worker_processes_are_killed_at_exit_before_loky_waits_for_them():
    program = """
import loky.process_executor
loky.process_executor._python_exit = lambda: print("loky waits")
from edgefl.training.parallel.worker_pool import WorkerPool, shared_pool
close = WorkerPool.close
WorkerPool.close = lambda pool: (close(pool), print("killed"))
shared_pool(2)
raise SystemExit("failed")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=LIMIT_SECONDS
    )
    assert done.stdout.split("\n") == ["killed", "loky waits", ""]
    assert done.stderr == "failed\n"
