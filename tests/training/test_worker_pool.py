"""Worker processes: fresh, alone with their work, gone with the process that began them."""

from __future__ import annotations

import ast
import fcntl
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from edgefl.training.parallel.worker_pool import PoolBroken, WorkerPool, shared_pool

pytestmark = pytest.mark.usefixtures("worker_processes")


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(processes, seconds: float = 30) -> bool:
    patience = time.monotonic() + seconds
    while any(map(alive, processes)) and time.monotonic() < patience:
        time.sleep(0.01)
    return not any(map(alive, processes))


@pytest.fixture
def pool():
    """The pool of this process; one begins for each test that broke it."""
    found = shared_pool(2)
    found.wait()
    return found


def answers(pool, function, arguments, **options):
    found = {}
    calls = ((number, (function, (argument,))) for number, argument in enumerate(arguments))
    pool.each(calls, found.__setitem__, options.pop("at_once", 5), **options)
    return [found[number] for number in sorted(found)]


def test_every_call_is_answered_by_a_worker_process(pool):
    under_way, most = set(), []

    def calls():
        for number in range(20):
            under_way.add(number)
            most.append(len(under_way))
            yield number, ((lambda value: (value**2, os.getpid())), (number,))

    found = {}

    def done(number, answer):
        under_way.remove(number)
        found[number] = answer

    pool.each(calls(), done, 5)
    assert {number: square for number, (square, _) in found.items()} == {number: number**2 for number in range(20)}
    workers = {process for _, process in found.values()}
    assert len(workers) <= 2
    assert os.getpid() not in workers
    assert max(most) == 5


def test_the_lowest_failure_is_raised_nothing_new_is_begun_and_the_pool_goes_on(pool, tmp_path):
    def touch(number):
        (tmp_path / str(number)).touch()
        raise ValueError(f"{number} has no place here")

    with pytest.raises(ValueError, match="0 has no place here"):
        answers(pool, touch, range(40), at_once=3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2"]
    assert answers(pool, abs, [-4, -5]) == [4, 5]


def test_whoever_takes_an_answer_may_fail_without_harm_to_the_pool(pool):
    def done(number, answer):
        if number in (2, 5):
            raise KeyError(number)

    with pytest.raises(KeyError, match="2"):
        pool.each(((number, (abs, (number,))) for number in range(8)), done, 8)
    assert answers(pool, abs, [-1]) == [1]


def test_long_messages_travel(pool):
    long = bytes(1_000_000)
    assert answers(pool, lambda request: request + b"!", [long + bytes([number]) for number in range(6)]) == [
        long + bytes([number]) + b"!" for number in range(6)
    ]


def test_worker_processes_compute_with_one_thread_and_ignore_ctrl_c(pool):
    def told(_):
        return torch.get_num_threads(), os.environ["OMP_NUM_THREADS"], signal.getsignal(signal.SIGINT)

    assert set(answers(pool, told, range(4))) == {(1, "1", signal.SIG_IGN)}


def test_worker_processes_hold_no_file_of_this_process(tmp_path):
    with (tmp_path / "lock").open("w") as lock:
        os.set_inheritable(lock.fileno(), True)
        fcntl.flock(lock, fcntl.LOCK_EX)
        pool = WorkerPool(1)
        pool.wait()
    with (tmp_path / "lock").open("w") as again:
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
    pool.close()


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_a_worker_process_does_not_take_the_same_memory_from_the_system_again_and_again(pool):
    def faults(times):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(times):
            held = [torch.ones(6_000_000) for _ in range(5)]
            del held
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    answers(pool, faults, [3] * 4, at_once=1)
    # 120 MB are about 30,000 pages: taken once, not twenty times more.
    assert min(answers(pool, faults, [20] * 4, at_once=1)) < 30_000


def test_a_worker_process_that_is_killed_breaks_the_pool_and_the_next_one_is_sound(pool):
    with pytest.raises(PoolBroken, match="terminated"):
        answers(pool, lambda request: os.kill(os.getpid(), signal.SIGKILL), range(3))
    assert pool.broken
    with pytest.raises(PoolBroken):
        answers(pool, abs, [1])
    again = shared_pool(2)
    assert again is not pool
    again.wait()
    assert answers(again, abs, [-2]) == [2]


def test_a_worker_process_that_is_stuck_is_not_waited_for():
    pool = WorkerPool(1)
    pool.wait()
    (worker,) = answers(pool, lambda _: os.getpid(), [0])
    with pytest.raises(PoolBroken, match="no worker process has answered for"):
        answers(pool, time.sleep, [600], patience=0.3)
    assert gone([worker])


def test_worker_processes_end_with_the_process_that_was_killed():
    source = (
        "import os, time\n"
        "from edgefl.training.parallel.worker_pool import WorkerPool\n"
        "pool = WorkerPool(2); pool.wait(); found = []\n"
        "def slow(request): time.sleep(0.1); return os.getpid()\n"
        "pool.each(((n, (slow, (n,))) for n in range(6)), lambda n, answer: found.append(answer), 4)\n"
        "print(*set(found), flush=True)\n"
        "pool.each(((n, (time.sleep, (1000,))) for n in range(6)), print, 4)\n"
    )
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True) as process:
        workers = [int(word) for word in process.stdout.readline().split()]
        assert workers
        assert all(map(alive, workers))
        process.kill()
    assert gone(workers)


def test_ctrl_c_while_worker_processes_begin_ends_none_of_them():
    source = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from edgefl.training.parallel.worker_pool import WorkerPool\n"
        "pool = WorkerPool(1)\n"
        "for _ in range(20): os.killpg(0, signal.SIGINT); time.sleep(0.02)\n"
        "pool.wait(); pool.each([(0, (abs, (-3,)))], print, 1)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=False, start_new_session=True, timeout=300
    )
    assert (told.stdout, told.stderr) == ("0 3\n", "")


FORKS = r"\bos\.fork|forkpty|get_context\(\s*[\"']fork|get_context\(\)|set_start_method|preexec_fn"


def test_nothing_in_the_package_forks_this_process():
    """Threads of this process, OpenMP's too, do not exist in a fork, which then waits for them for ever."""
    package = Path(sys.modules["edgefl"].__file__).parent
    for path in package.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.findall(FORKS, text), path
        if re.search(r"\bmultiprocessing\b(?!\.util)|from concurrent\.futures import .*ProcessPoolExecutor", text):
            assert 'get_context("spawn")' in text, f"{path}: the system's own choice may be to fork"


KILLS = {"kill", "killpg", "terminate", "send_signal", "raise_signal", "pthread_kill", "tgkill", "kill_workers"}
"""Functions and options that send a signal, and so may end a process."""

ALLOWED_KILLS = {
    ("emulation/link_maker.py", "kill"): "a child that it has not yet waited for",
    ("emulation/real_links.py", "kill"): "a child that it has not yet waited for",
    ("emulation/links.py", "kill"): "a child that it has not yet waited for",
    ("emulation/trainers.py", "kill"): "a child that it has not yet waited for",
    ("training/parallel/worker_pool.py", "kill_workers"): "loky ends children that it has not yet waited for",
}
"""By module and name, with the reason why the id cannot be another process's."""


def names_in(node):
    """The names that a node mentions: an attribute, a variable, an import, an option of a call, or a whole text."""
    if isinstance(node, ast.ImportFrom):
        return [each.name for each in node.names]
    found = [getattr(node, field, None) for field in ("attr", "id", "arg", "value")]
    return [name for name in found if isinstance(name, str)]


def kills(source):
    """What a module mentions that sends signals."""
    names = (name for node in ast.walk(ast.parse(source)) for name in names_in(node))
    return [name for name in names if name in KILLS or "pidfd" in name]


def test_nothing_in_the_package_kills_a_process_by_an_id_that_may_be_anothers():
    package = Path(sys.modules["edgefl"].__file__).parent
    found = {
        (path.relative_to(package).as_posix(), name)
        for path in package.rglob("*.py")
        for name in kills(path.read_text(encoding="utf-8"))
    }
    assert found == set(ALLOWED_KILLS)


@pytest.mark.parametrize(
    "source",
    [
        "os.kill(process, signal.SIGKILL)",
        "os.killpg(os.getpgid(process), 9)",
        "signal.pidfd_send_signal(descriptor, 9)",
        "process.terminate()",
        "map(subprocess.Popen.kill, children)",
        "from os import kill as end",
        "getattr(os, 'kill')(process, 9)",
        "pool.shutdown(kill_workers=True)",
    ],
)
def test_the_usual_ways_to_kill_are_seen(source):
    assert kills(source)
