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
from dataclasses import replace
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


def test_what_was_begun_is_answered_later_with_the_rest():
    crew = Crew(2, squares)
    begun = {}
    while crew.idle and len(begun) < 5:
        number = len(begun)
        begun[number] = crew.begin(lambda slot, number=number: number, lambda answer, slot: answer[0])
    assert 2 <= len(begun) <= 5
    order = range(len(begun), 12)
    answers = crew.answers(order, lambda number, slot: number, lambda number, answer, slot: answer[0], begun=begun)
    assert answers == {number: number**2 for number in range(12)}
    crew.dismiss()


def test_what_was_begun_and_is_not_wanted_any_more_stands_in_nobodys_way():
    def slow(number):
        time.sleep(0.2 * (number < 0))
        return squares(number)

    crew = Crew(1, slow)
    for _ in range(3):
        assert crew.idle
        errand = crew.begin(lambda slot: -1, lambda answer, slot: answer)
        assert not crew.idle
        answers = crew.answers(range(4), lambda number, slot: number)
        assert [answers[number][0] for number in range(4)] == [0, 1, 4, 9]
        assert errand.done
        assert str(errand.failure) == "-1 has no place here"
    crew.dismiss()


def test_a_request_that_failed_ahead_is_told_when_its_answer_is_wanted():
    crew = Crew(1, squares)
    errand = crew.begin(lambda slot: -5, lambda answer, slot: answer)
    while not crew.idle:
        time.sleep(0.01)
    with pytest.raises(ValueError, match="-5 has no place here"):
        crew.answers([1, 2], lambda number, slot: number, begun={0: errand})
    assert crew.answers([3], lambda number, slot: number)[3][0] == 9
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
@pytest.mark.parametrize("ahead", [False, True], ids=["at_once", "ahead"])
def test_copies_train_to_the_bits_of_one_after_another(tiny, entry, ahead):
    method = tiny.method(entry, **({"drop_last": True} if entry == "fedalign" else {}))
    reference = three_rounds(tiny.core("sequential"), method)
    core = tiny.core("parallel", 2)
    engine = engine_of(core)
    engine._settled = 0.0
    begun, begin = [], engine.begin
    engine.begin = lambda task: begun.append(task) or begin(task)
    assert same(reference, three_rounds(core, method, order=-1, ahead=ahead))
    assert engine._crew is not None
    assert not engine._crew._begun
    # In the first round there are no copies yet.
    assert len(begun) >= 4 if ahead else not begun
    core.close()


def test_results_are_told_as_they_come(tiny):
    method = tiny.method("fedavg")
    core, engine = with_copies(tiny, method)
    tasks = [core.learner(method)._inputs(tiny.job(client)).task for client in range(6)]
    assert engine.idle
    engine.begin(tasks[4])
    came, under_way = {}, []

    def arrived(place, result):
        came[place] = result
        under_way.append(sum(map(len, engine._crew._crew._under_way.values())))

    results = engine.train(tasks, arrived)
    assert all(came[place] is result for place, result in enumerate(results))
    assert under_way[0] > 0
    core.close()


@pytest.mark.parametrize("why", ["never submitted", "discarded", "changed"])
def test_a_job_that_is_not_used_as_it_was_begun_is_the_last_one_to_be_begun_early(tiny, why):
    method = tiny.method("fedavg")
    core, engine = with_copies(tiny, method)
    lost, *jobs = [tiny.job(client) for client in range(3)]
    learner, reference = core.learner(method), tiny.core("sequential").learner(method)
    assert engine.idle
    learner.expect(replace(lost, steps=lost.steps + 1) if why == "changed" else lost)
    assert list(learner._begun) == [lost.id]
    if why != "never submitted":
        learner.submit(lost)
    if why == "discarded":
        learner.discard(lost.id)
    if why == "changed":
        jobs, _ = [*jobs, lost], reference.submit(lost)
    for each in (learner, reference):
        for job in jobs:
            if job is not lost:
                each.submit(job)
        each.aggregate(0, [job.id for job in jobs], 0)
    assert torch.equal(learner.model(1), reference.model(1))
    assert not learner._begun
    assert not engine._crew._begun
    learner._engine = Greedy()
    learner.expect(tiny.job(5, version=1))
    assert not learner._begun
    core.close()


class Greedy:
    """An engine that would begin anything."""

    idle = True

    def begin(self, task):
        """It is not asked to do it."""


def test_jobs_begin_early_with_threads_nowhere(tiny):
    core = tiny.core("parallel", 2)
    learner = core.learner(tiny.method("fedavg"))
    learner.expect(tiny.job(0))
    assert not learner._begun
    assert not learner.at_work


def test_copies_that_are_killed_with_work_ahead_are_done_without(tiny):
    method = tiny.method("fedavg")
    (core, engine), reference = with_copies(tiny, method), tiny.core("sequential").learner(method)
    learner, jobs = core.learner(method), [tiny.job(client) for client in range(2)]
    learner.expect(jobs[0])
    for process in engine._crew._crew._dismiss.peek()[2][1]:
        os.kill(process, signal.SIGKILL)
    learner.expect(jobs[1])
    for each in (learner, reference):
        for job in jobs:
            each.submit(job)
        each.aggregate(0, [job.id for job in jobs], 0)
    assert torch.equal(learner.model(1), reference.model(1))
    assert engine._crew is None


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


@pytest.mark.parametrize("other", ["nothing", "another model", "another mode"])
def test_an_evaluation_that_began_early_comes_to_the_same_bits(tiny, other):
    reference, method = engine_of(tiny.core("sequential")), tiny.method("fedavg")
    core, engine = with_copies(tiny, method)
    vector, mode, scaled = 1.5 * core.initial, {}, {"keep_probability": (0.5, 0.25)}
    expected = reference.evaluate(vector, mode)[:2]
    for _ in range(3):
        engine.begin_evaluation(vector, mode)
        assert len(engine._crew._evaluation.begun) == 2
        # One that is never asked for keeps no later one from its own model.
        engine.begin_evaluation(core.initial, mode)
        if other == "another model":
            assert engine.evaluate(core.initial, mode)[:2] == reference.evaluate(core.initial, mode)[:2]
        if other == "another mode":
            assert engine.evaluate(vector, scaled)[:2] == reference.evaluate(vector, scaled)[:2]
        task = core.learner(method)._inputs(tiny.job(1)).task
        engine.begin(task)
        assert engine.evaluate(vector, mode)[:2] == expected
        assert torch.equal(engine.train([task])[0].final, reference.train([task])[0].final)
        assert engine._crew._evaluation is None
    core.close()


def test_an_evaluation_that_began_early_and_failed_is_told_when_it_is_asked_for(tiny):
    core, engine = with_copies(tiny)
    vector, wrong = 1.5 * core.initial, {"width": "wide"}
    engine.begin_evaluation(vector, wrong)
    with pytest.raises(TypeError, match="not supported between"):
        engine.evaluate(vector, wrong)
    engine.begin_evaluation(vector, wrong)
    # Where nobody asks for it, it does not matter.
    assert engine.evaluate(vector, {})[:2] == engine_of(tiny.core("sequential")).evaluate(vector, {})[:2]
    assert engine._crew is not None
    core.close()


def test_threads_evaluate_where_copies_are_killed_with_an_evaluation_ahead(tiny):
    core, engine = with_copies(tiny)
    vector, mode = 1.5 * core.initial, {}
    engine.begin_evaluation(vector, mode)
    for process in engine._crew._crew._dismiss.peek()[2][1]:
        os.kill(process, signal.SIGKILL)
    engine.begin_evaluation(core.initial, mode)
    assert engine.evaluate(vector, mode)[:2] == engine_of(tiny.core("sequential")).evaluate(vector, mode)[:2]
    assert engine._crew is None


def test_an_evaluation_does_not_wait_for_a_job_that_is_stuck(tiny, monkeypatch):
    method = tiny.method("fedavg")
    core, engine = with_copies(tiny, method)
    learner = core.learner(method)
    engine.evaluate(learner.model(0), {})
    for process in engine._crew._crew._dismiss.peek()[2][1]:
        os.kill(process, signal.SIGSTOP)
    # It begins with the model that was just evaluated, which the next evaluation would overwrite.
    learner.expect(tiny.job(0))
    assert len(engine._crew._readers) == 1
    monkeypatch.setattr(engine, "_patience", lambda steps: 0.3)
    engine.begin_evaluation(1.5 * core.initial, {})
    assert engine._crew is None


def test_a_job_that_began_with_the_evaluated_model_keeps_it_while_others_are_evaluated(tiny):
    reference, method = tiny.core("sequential"), tiny.method("fedprox")
    core, engine = with_copies(tiny, method)
    learner = core.learner(method)
    task = learner._inputs(tiny.job(2)).task
    expected = engine_of(reference).train([task])[0].final
    for _ in range(5):
        engine.evaluate(learner.model(0), {})
        engine.begin(task)
        assert len(engine._crew._readers) == 1
        for scale in (2.0, 3.0):
            engine.begin_evaluation(scale * core.initial, {})
            engine.evaluate(scale * core.initial, {})
        assert torch.equal(engine.train([task])[0].final, expected)
    core.close()


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
