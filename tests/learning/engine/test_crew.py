"""Copies of the process that train: the same bits, nothing left behind, and threads where copies cannot do it."""

from __future__ import annotations

import ctypes
import fcntl
import gc
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from edgefl.learning.engine.crew import Crew
from edgefl.learning.engine.parallel import ParallelEngine
from edgefl.learning.engine.process_copy import CrewLost, can_be_copied
from edgefl.learning.faults import TrainingFault
from edgefl.learning.objectives.cross_entropy import CrossEntropy

from .test_engine_agreement import METHODS, same, three_rounds

pytestmark = pytest.mark.skipif(not can_be_copied(), reason="a process with an accelerator is not copied")


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(processes) -> bool:
    patience = time.monotonic() + 30
    while any(map(alive, processes)) and time.monotonic() < patience:
        time.sleep(0.01)
    return not any(map(alive, processes))


def squares(number: int) -> tuple[int, int]:
    if number < 0:
        raise ValueError(f"{number} has no place here")
    return number * number, os.getpid()


def test_every_request_is_answered_by_a_copy():
    crew = Crew(3, squares)
    held = set()

    def request(number, slot):
        assert slot not in held
        held.add(slot)
        return number

    def taken(number, answer, slot):
        held.remove(slot)
        return answer

    answers = crew.answers(range(20), request, taken)
    copies = {process for _, process in answers.values()}
    assert len(copies) <= 3
    assert os.getpid() not in copies
    assert {number: square for number, (square, _) in answers.items()} == {number: number**2 for number in range(20)}
    crew.dismiss()
    assert gone(copies)


@pytest.mark.parametrize("alike", [False, True])
def test_the_lowest_failure_is_raised_and_nothing_new_is_begun(tmp_path, alike):
    def serve(number):
        (tmp_path / str(number)).touch()
        return squares(-number)

    with pytest.raises(ValueError, match="-1 has no place here"):
        Crew(1, serve).answers([0, 1, 2, 3, 4], lambda number, slot: number, alike=alike)
    # What lay ready in the copy's queue is done.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2"][: 2 + alike]


def test_a_crew_goes_on_after_a_request_that_failed():
    crew = Crew(2, squares)
    with pytest.raises(ValueError, match="-1 has no place here"):
        crew.answers([1, -1, 2, 3], lambda number, slot: number)
    answers = crew.answers([4, 5, 6, 7], lambda number, slot: number)
    assert [answers[number][0] for number in (4, 5, 6, 7)] == [16, 25, 36, 49]
    crew.dismiss()


def test_whoever_takes_an_answer_may_fail_without_harm_to_the_crew():
    def taken(number, answer, slot):
        if number in (2, 5):
            raise KeyError(number)
        return answer

    crew = Crew(2, squares)
    with pytest.raises(KeyError, match="2"):
        crew.answers(range(8), lambda number, slot: number, taken)
    answers = crew.answers(range(6, 12), lambda number, slot: number, taken)
    assert [answers[number][0] for number in range(6, 12)] == [36, 49, 64, 81, 100, 121]
    crew.dismiss()


def test_whoever_takes_an_answer_may_ask_how_busy_the_copies_are():
    crew, seen = Crew(3, squares), []

    def taken(number, answer, slot):
        # Meanwhile the others are done, too; their answers must still be there for those who wait for them.
        time.sleep(0.02)
        seen.append((crew.idle, crew.busy))
        return answer

    for _ in range(3):
        answers = crew.answers(range(9), lambda number, slot: number, taken)
        assert [answers[number][0] for number in range(9)] == [number**2 for number in range(9)]
    assert len(seen) == 27
    assert not crew.busy
    crew.dismiss()


def test_a_crew_that_was_dismissed_begins_nothing():
    crew = Crew(1, squares)
    crew.dismiss()
    with pytest.raises(CrewLost, match="the copies were dismissed"):
        assert crew.idle
    with pytest.raises(CrewLost, match="the copies were dismissed"):
        crew.answers([1], lambda number, slot: number)


def test_long_requests_and_answers_do_not_wait_for_one_another():
    crew = Crew(2, lambda request: request + b"!")
    long = bytes(1_000_000)
    answers = crew.answers(range(12), lambda number, slot: long + bytes([number]), alike=True)
    assert all(answers[number] == long + bytes([number]) + b"!" for number in range(12))
    crew.dismiss()


@pytest.mark.parametrize("alike", [False, True])
def test_the_last_requests_and_those_that_differ_go_to_whoever_is_free(alike):
    def slow(seconds):
        time.sleep(seconds)
        return os.getpid()

    crew = Crew(2, slow)
    seconds = {0: 1.0, **dict.fromkeys(range(1, 6), 0.01)}
    answers = crew.answers(sorted(seconds), lambda number, slot: seconds[number], alike=alike)
    # Taken for alike, one of the short ones lay ready where the long one was under way.
    assert list(answers.values()).count(answers[0]) == 1 + alike
    crew.dismiss()


def test_copies_that_the_system_has_forgotten_are_dismissed():
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        crew = Crew(2, squares)
        copies = crew._dismiss.peek()[2][1]
        os.kill(copies[0], signal.SIGKILL)
        assert gone(copies[:1])
        crew.dismiss()
        assert gone(copies)
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_ctrl_c_in_the_moment_of_copying_ends_no_copy():
    source = (
        "import os, signal; from edgefl.learning.engine.crew import Crew\n"
        "fork = os.fork\n"
        "def interrupted():\n"
        "    process = fork()\n"
        "    if not process: os.kill(os.getpid(), signal.SIGINT)\n"
        "    return process\n"
        "os.fork = interrupted\n"
        "print(Crew(1, abs).answers([-3], lambda number, slot: number))\n"
    )
    told = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert (told.stdout, told.stderr) == ("{-3: 3}\n", "")


def test_a_copy_that_ends_is_missed():
    def end(request):
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(CrewLost):
        Crew(2, end).answers([0, 1, 2], lambda number, slot: number)


def test_a_copy_that_is_stuck_is_not_waited_for():
    crew = Crew(2, time.sleep)
    copies = crew._dismiss.peek()[2][1]
    with pytest.raises(CrewLost, match="no worker process has answered"):
        crew.answers([0, 600], lambda number, slot: number, patience=0.3)
    assert gone(copies)


def test_a_crew_that_nobody_holds_is_dismissed():
    crew = Crew(2, squares)
    copies = {process for _, process in crew.answers([1, 2, 3, 4], lambda number, slot: number).values()}
    del crew
    gc.collect()
    assert gone(copies)


def test_copies_hold_no_file_of_the_process_that_was_copied(tmp_path):
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        crew = Crew(1, squares)
        crew.answers([1], lambda number, slot: number)
    with (tmp_path / "lock").open("w") as again:
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
    crew.dismiss()


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="another allocator than glibc's")
def test_a_copy_does_not_take_the_same_memory_from_the_system_again_and_again():
    def faults(times):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(times):
            held = [torch.ones(6_000_000) for _ in range(5)]
            del held
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    crew = Crew(1, faults)
    answers = crew.answers([3, 20], lambda number, slot: number)
    crew.dismiss()
    # 120 MB are about 30,000 pages: taken once, not twenty times more.
    assert answers[20] < 30_000


def test_copies_end_with_the_process_that_was_killed():
    source = (
        "import os, time; from edgefl.learning.engine.crew import Crew\n"
        "crew = Crew(2, lambda request: (time.sleep(0.05), os.getpid())[1])\n"
        "print(*set(crew.answers([0, 1, 2, 3], lambda number, slot: number).values()), flush=True)\n"
        "crew.answers(range(10**6), lambda number, slot: number)\n"
    )
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True) as process:
        copies = [int(word) for word in process.stdout.readline().split()]
        assert copies
        assert all(map(alive, copies))
        process.kill()
    assert gone(copies)


def engine_of(core) -> ParallelEngine:
    return core._own.engine._engine


def with_copies(tiny, method=None):
    """A core whose jobs copies of the process train, and its engine, once they have done so."""
    core = tiny.core("parallel", 2)
    engine_of(core)._settled = 0.0
    three_rounds(core, method or tiny.method("fedavg"))
    assert engine_of(core)._crew is not None
    return core, engine_of(core)


@pytest.mark.parametrize("entry", [*METHODS, "scaffold", "feddyn"], ids=str)
def test_copies_train_to_the_bits_of_one_after_another(tiny, entry):
    method = tiny.method(entry, **({"drop_last": True} if entry == "fedalign" else {}))
    reference = three_rounds(tiny.core("sequential"), method)
    core = tiny.core("parallel", 2)
    engine = engine_of(core)
    engine._settled = 0.0
    assert same(reference, three_rounds(core, method, order=-1))
    assert engine._crew is not None
    core.close()


def test_results_are_told_as_they_come(tiny):
    method = tiny.method("fedavg")
    core, engine = with_copies(tiny, method)
    tasks = [core.learner(method)._inputs(tiny.job(client)).task for client in range(6)]
    came, under_way = {}, []

    def arrived(place, result):
        came[place] = result
        under_way.append(sum(map(len, engine._crew._crew._under_way.values())))

    results = engine.train(tasks, arrived)
    assert all(came[place] is result for place, result in enumerate(results))
    assert under_way[0] > 0
    core.close()


def test_what_no_board_has_room_for_travels_with_the_message(tiny, monkeypatch):
    monkeypatch.setattr("edgefl.learning.engine.training_crew._VECTORS", 0)
    method = tiny.method("scaffold")
    reference, core = three_rounds(tiny.core("sequential"), method), tiny.core("parallel", 2)
    engine_of(core)._settled = 0.0
    assert same(reference, three_rounds(core, method))
    assert engine_of(core)._crew is not None
    core.close()


def test_threads_train_where_there_is_no_memory_to_share(tiny, monkeypatch):
    def full(size):
        raise OSError("no room")

    monkeypatch.setattr("edgefl.learning.engine.training_crew.Board", full)
    method, core = tiny.method("fedavg"), tiny.core("parallel", 2)
    engine_of(core)._settled = 0.0
    assert same(three_rounds(tiny.core("sequential"), method), three_rounds(core, method))
    assert engine_of(core)._crew is None


@pytest.mark.parametrize("mode", [{}, {"keep_probability": (0.5, 0.25)}], ids=["plain", "scaled"])
def test_copies_evaluate_to_the_bits_of_one_batch_after_another(tiny, mode):
    (core, engine), reference = with_copies(tiny), tiny.core("sequential")
    monitored = []
    original = engine._crew.evaluate
    engine._crew.evaluate = lambda *given: monitored.append(given) or original(*given)
    vector = 1.5 * core.initial
    expected = engine_of(reference).evaluate(vector, mode)[:2]
    assert engine.evaluate(vector, mode)[:2] == expected
    assert len(monitored) == 1
    for process in engine._crew._crew._dismiss.peek()[2][1]:
        os.kill(process, signal.SIGKILL)
    assert engine.evaluate(vector, mode)[:2] == expected
    assert engine._crew is None


def test_threads_evaluate_where_copies_are_stuck(tiny, monkeypatch):
    (core, engine), reference = with_copies(tiny), tiny.core("sequential")
    for process in engine._crew._crew._dismiss.peek()[2][1]:
        os.kill(process, signal.SIGSTOP)
    monkeypatch.setattr(engine, "_patience", lambda steps: 0.3)
    vector = 1.5 * core.initial
    assert engine.evaluate(vector, {})[:2] == engine_of(reference).evaluate(vector, {})[:2]
    assert engine._crew is None


def test_threads_train_until_it_is_worth_copying_the_process(tiny):
    core = tiny.core("parallel", 2)
    three_rounds(core, tiny.method("fedavg"))
    assert engine_of(core)._crew is None
    assert 0 < engine_of(core)._seconds < 2


def test_threads_go_on_where_copies_are_killed(tiny):
    method = tiny.method("fedavg")
    reference, core = three_rounds(tiny.core("sequential"), method), tiny.core("parallel", 2)
    engine = engine_of(core)
    engine._settled = 0.0
    learner = core.learner(method)
    learner.submit(tiny.job(0))
    learner.submit(tiny.job(1))
    learner.aggregate(0, [tiny.job(0).id, tiny.job(1).id], 0)
    for process in engine._crew._crew._dismiss.peek()[2][1]:
        os.kill(process, signal.SIGKILL)
    assert same(reference, three_rounds(core, method))
    assert engine._crew is None


def test_threads_train_what_cannot_be_sent(tiny):
    class Local(CrossEntropy):
        """Only this function knows it."""

    method = tiny.method("fedavg")
    reference = three_rounds(tiny.core("sequential"), method)
    core = tiny.core("parallel", 2)
    engine_of(core)._settled = 0.0
    object.__setattr__(method, "objective", Local())
    assert same(reference, three_rounds(core, method))
    assert engine_of(core)._crew is None


class Shy(CrossEntropy):
    def __reduce__(self):
        raise ValueError("not for pickling")


class Unreadable(CrossEntropy):
    def __reduce__(self):
        return int, ("no number",)


@pytest.mark.parametrize("objective", [Shy(), Unreadable()], ids=lambda each: type(each).__name__)
def test_threads_train_what_fails_on_its_way_in_whatever_manner(tiny, objective):
    method = tiny.method("fedavg")
    reference = three_rounds(tiny.core("sequential"), method)
    core = tiny.core("parallel", 2)
    engine_of(core)._settled = 0.0
    object.__setattr__(method, "objective", objective)
    assert same(reference, three_rounds(core, method))
    assert engine_of(core)._crew is None


def test_an_answer_that_cannot_be_read_loses_the_crew():
    with pytest.raises(CrewLost, match="an answer cannot be read: ValueError"):
        Crew(1, lambda request: Unreadable()).answers([1], lambda number, slot: number)


class Broken(CrossEntropy):
    def loss(self, *arguments):
        raise KeyError("lost")


def test_a_fault_in_a_copy_names_method_client_round_and_step(tiny):
    method = tiny.method("fedavg")
    object.__setattr__(method, "objective", Broken())
    core = tiny.core("parallel", 2)
    engine_of(core)._settled = 0.0
    with pytest.raises(TrainingFault, match=r"client ., round 0, local step 0: KeyError: 'lost'"):
        three_rounds(core, method)
    # The other methods go on, by copies as before.
    others = tiny.method("fedprox")
    assert same(three_rounds(tiny.core("sequential"), others), three_rounds(core, others))
    assert engine_of(core)._crew is not None
    core.close()


def test_an_engine_that_is_closed_leaves_no_copy(tiny):
    core = tiny.core("parallel", 2)
    engine_of(core)._settled = 0.0
    three_rounds(core, tiny.method("fedavg"))
    copies = list(engine_of(core)._crew._crew._dismiss.peek()[2][1])
    assert all(map(alive, copies))
    core.close()
    assert gone(copies)
    assert torch.get_num_threads() >= 1
