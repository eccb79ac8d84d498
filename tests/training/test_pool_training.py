"""Worker processes that train: the same bits, and one process with a word in the log where they cannot do it."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from typing import ClassVar

import cloudpickle
import pytest
import torch

from edgefl.methods.objectives.cross_entropy import CrossEntropy
from edgefl.training.faults import TrainingFault
from edgefl.training.parallel.engine import ParallelEngine
from edgefl.training.parallel.worker_pool import shared_pool

from .test_engine_agreement import METHODS, same, three_rounds

pytestmark = pytest.mark.usefixtures("worker_processes")
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def engine_of(core) -> ParallelEngine:
    return core._own.engine._engine


def with_workers(tiny):
    """A core whose jobs worker processes train, and its engine."""
    core = tiny.core("parallel", 2)
    shared_pool(2).wait()
    assert engine_of(core)._ready_pool() is not None
    return core, engine_of(core)


def workers_of(engine) -> list[int]:
    return list(engine._pool._pool._executor._processes)


def trained_by_workers(engine) -> list[int]:
    """Notes how many jobs worker processes are given."""
    jobs, train = [], engine._pool.train
    engine._pool.train = lambda tasks, *rest: jobs.append(len(tasks)) or train(tasks, *rest)
    return jobs


@pytest.mark.parametrize("entry", [*METHODS, "scaffold", "feddyn"], ids=str)
def test_worker_processes_train_to_the_bits_of_one_after_another(tiny, entry, caplog):
    method = tiny.method(entry, **({"drop_last": True} if entry == "fedalign" else {}))
    reference = three_rounds(tiny.core("sequential"), method)
    core = tiny.core("parallel", 2)
    engine = core._adapted_to(method.objective).engine._engine
    shared_pool(2).wait()
    engine._ready_pool()
    jobs = trained_by_workers(engine)
    assert same(reference, three_rounds(core, method, order=-1))
    assert sum(jobs) == 18
    assert not caplog.records
    core.close()


def test_results_are_told_while_other_jobs_are_under_way(tiny):
    method = tiny.method("fedavg")
    core, engine = with_workers(tiny)
    tasks = [core.learner(method)._inputs(tiny.job(client)).task for client in range(6)]
    came, done = {}, []

    def arrived(place, result):
        came[place] = result
        done.append(len(came))

    results = engine.train(tasks, arrived)
    assert all(came[place] is result for place, result in enumerate(results))
    assert done == [1, 2, 3, 4, 5, 6]
    core.close()


def test_what_the_buffer_has_no_room_for_travels_with_the_message(tiny, monkeypatch):
    monkeypatch.setattr("edgefl.training.parallel.pool_training._VECTORS", 0)
    method = tiny.method("scaffold")
    reference = three_rounds(tiny.core("sequential"), method)
    core, engine = with_workers(tiny)
    assert same(reference, three_rounds(core, method))
    assert engine._pool is not None
    core.close()


def test_one_process_trains_where_there_is_no_memory_to_share(tiny, monkeypatch, caplog):
    def full(size):
        raise OSError("no room")

    shared_pool(2).wait()
    monkeypatch.setattr("edgefl.training.parallel.pool_training.SharedBuffer", full)
    method, core = tiny.method("fedavg"), tiny.core("parallel", 2)
    assert same(three_rounds(tiny.core("sequential"), method), three_rounds(core, method))
    assert engine_of(core)._pool is None
    assert "no shared memory is available" in caplog.text


@pytest.mark.parametrize("mode", [{}, {"keep_probability": (0.5, 0.25)}], ids=["plain", "scaled"])
def test_worker_processes_evaluate_to_the_bits_of_one_batch_after_another(tiny, mode):
    (core, engine), reference = with_workers(tiny), tiny.core("sequential")
    vector = 1.5 * core.initial
    expected = engine_of(reference).evaluate(vector, mode)[:2]
    assert engine.evaluate(vector, mode)[:2] == expected
    for process in workers_of(engine):
        os.kill(process, signal.SIGKILL)
    assert engine.evaluate(vector, mode)[:2] == expected
    assert engine._pool is None


def test_one_process_evaluates_where_worker_processes_are_stuck(tiny, monkeypatch, caplog):
    (core, engine), reference = with_workers(tiny), tiny.core("sequential")
    for process in workers_of(engine):
        os.kill(process, signal.SIGSTOP)
    monkeypatch.setattr(engine, "_patience", lambda steps: 0.3)
    vector = 1.5 * core.initial
    assert engine.evaluate(vector, {})[:2] == engine_of(reference).evaluate(vector, {})[:2]
    assert engine._pool is None
    assert "no worker process has answered" in caplog.text


def test_nothing_is_taken_for_stuck_before_it_is_known_how_long_a_step_takes(tiny):
    core, engine = with_workers(tiny)
    assert engine._patience(1000) is None
    three_rounds(core, tiny.method("fedavg"))
    assert engine._patience(1000) > 120
    core.close()


def test_short_runs_begin_no_worker_process(tiny, monkeypatch):
    monkeypatch.setattr("edgefl.training.parallel.engine.ready_pool", lambda size: None)
    monkeypatch.setattr("edgefl.training.parallel.engine.shared_pool", lambda size: pytest.fail("one began"))
    three_rounds(tiny.core("parallel", 2), tiny.method("fedavg"))


def test_one_process_trains_while_worker_processes_begin_and_these_take_over_when_they_are_ready(tiny, monkeypatch):
    method = tiny.method("fedavg")
    reference = three_rounds(tiny.core("sequential"), method)
    core, started = tiny.core("parallel", 2), []

    class Beginning:
        size, broken, ready = 2, False, False

    monkeypatch.setattr("edgefl.training.parallel.engine.ready_pool", lambda size: started[-1] if started else None)
    monkeypatch.setattr(
        "edgefl.training.parallel.engine.shared_pool", lambda size: started.append(Beginning()) or started[-1]
    )
    engine = engine_of(core)
    engine._settled = 0
    assert same(reference, three_rounds(core, method))
    assert len(started) == 1
    assert engine._pool is None
    pool = shared_pool(2)
    pool.wait()
    started.append(pool)
    assert same(reference, three_rounds(core, method))
    assert engine._pool is not None
    core.close()


def test_a_worker_process_that_is_killed_is_told_once_and_another_pool_begins_later(tiny, caplog):
    method = tiny.method("fedavg")
    reference = three_rounds(tiny.core("sequential"), method)
    core, engine = with_workers(tiny)
    os.kill(workers_of(engine)[0], signal.SIGKILL)
    assert same(reference, three_rounds(core, method))
    assert engine._pool is None
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "training continues in this process" in caplog.text
    # As if it had trained for long since.
    engine._seconds += 1000
    three_rounds(core, method)
    shared_pool(2).wait()
    assert same(reference, three_rounds(core, method))
    assert engine._pool is not None
    assert len(caplog.records) == 1
    core.close()


class Killed(CrossEntropy):
    """Ends the worker process that trains client 3, in the midst of its job."""

    client: ClassVar[frozenset[str]] = frozenset({"label_counts"})
    parent: int

    def loss(self, local, batch, context):
        if os.getpid() != self.parent and int(context.client["label_counts"].sum()) == 20:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().loss(local, batch, context)


def test_a_worker_process_killed_in_the_midst_of_a_job_changes_no_bit(tiny, caplog):
    method, other = tiny.method("fedavg"), tiny.method("fedavg")
    object.__setattr__(method, "objective", Killed(parent=os.getpid()))
    core, engine = with_workers(tiny)
    jobs = trained_by_workers(engine)
    assert same(three_rounds(tiny.core("sequential"), other), three_rounds(core, method))
    assert jobs == [6]
    assert len(caplog.records) == 1


class Shy(CrossEntropy):
    def __reduce__(self):
        raise ValueError("not for pickling")


class Unreadable(CrossEntropy):
    def __reduce__(self):
        return int, ("no number",)


@pytest.mark.parametrize("objective", [Shy(), Unreadable()], ids=lambda each: type(each).__name__)
def test_one_process_trains_what_fails_on_its_way_in_and_workers_train_the_rest(tiny, objective, caplog):
    method, other = tiny.method("fedavg"), tiny.method("fedprox")
    reference = three_rounds(tiny.core("sequential"), method)
    core, engine = with_workers(tiny)
    object.__setattr__(method, "objective", objective)
    assert same(reference, three_rounds(core, method))
    assert len(caplog.records) == 1
    assert "training uses one process only" in caplog.text
    jobs = trained_by_workers(engine)
    assert same(three_rounds(tiny.core("sequential"), other), three_rounds(core, other))
    assert sum(jobs) == 18
    core.close()


def test_classes_of_a_function_travel(tiny):
    class Local(CrossEntropy):
        """Only this function knows it."""

    method = tiny.method("fedavg")
    reference = three_rounds(tiny.core("sequential"), method)
    core, engine = with_workers(tiny)
    object.__setattr__(method, "objective", Local())
    jobs = trained_by_workers(engine)
    assert same(reference, three_rounds(core, method))
    assert sum(jobs) == 18
    core.close()


class Broken(CrossEntropy):
    def loss(self, *arguments):
        raise KeyError("lost")


def test_a_fault_in_a_worker_process_names_method_client_round_and_step(tiny, caplog):
    method = tiny.method("fedavg")
    object.__setattr__(method, "objective", Broken())
    core, engine = with_workers(tiny)
    with pytest.raises(TrainingFault, match=r"client ., round 1, local step 1: KeyError: 'lost'"):
        three_rounds(core, method)
    # The other methods go on, by worker processes as before.
    others = tiny.method("fedprox")
    assert same(three_rounds(tiny.core("sequential"), others), three_rounds(core, others))
    assert engine._pool is not None
    assert not caplog.records
    core.close()


def test_worker_processes_outlive_the_thread_that_began_them_and_the_engine(tiny):
    method = tiny.method("fedavg")
    reference, found = three_rounds(tiny.core("sequential"), method), []

    def one_call():
        core, engine = with_workers(tiny)
        jobs = trained_by_workers(engine)
        found.append((same(reference, three_rounds(core, method)), sum(jobs), set(workers_of(engine))))
        core.close()

    for _ in range(3):
        thread = threading.Thread(target=one_call)
        thread.start()
        thread.join()
        time.sleep(0.1)
    assert [(bits, jobs) for bits, jobs, _ in found] == [(True, 18)] * 3
    assert found[0][2] == found[1][2] == found[2][2]


def test_two_threads_at_the_same_time_share_the_worker_processes(tiny):
    method = tiny.method("fedprox")
    reference, found = three_rounds(tiny.core("sequential"), method), []

    def one_call():
        core, _ = with_workers(tiny)
        found.append(same(reference, three_rounds(core, method)))
        core.close()

    threads = [threading.Thread(target=one_call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 3


def test_no_engine_computes_with_the_settings_of_the_caller(tiny):
    """Which library computes a convolution decides its last bits."""
    method = tiny.method("fedavg")
    reference = three_rounds(tiny.core("sequential"), method)
    core, engine = with_workers(tiny)
    with torch.backends.mkldnn.flags(enabled=False), torch.autocast("cpu", torch.bfloat16):
        assert same(reference, three_rounds(tiny.core("sequential"), method))
        jobs = trained_by_workers(engine)
        assert same(reference, three_rounds(core, method))
    assert sum(jobs) == 18
    core.close()


def changing():
    import torch  # a function that is pickled by value cannot take some of its modules along

    torch.backends.mkldnn.enabled = False
    torch.set_default_dtype(torch.float64)
    return Changing()


class Changing(CrossEntropy):
    """Changes the settings of a process that reads it, as the import of a plug-in may."""

    def __reduce__(self):
        return changing, ()


def test_settings_that_a_part_changes_where_it_is_read_reach_no_job(tiny, caplog):
    method, plain = tiny.method("fedavg"), tiny.method("fedprox")
    reference = three_rounds(tiny.core("sequential"), method)
    object.__setattr__(method, "objective", Changing())
    core, engine = with_workers(tiny)
    jobs = trained_by_workers(engine)
    assert same(reference, three_rounds(core, method))
    assert same(three_rounds(tiny.core("sequential"), plain), three_rounds(core, plain))
    assert sum(jobs) == 36
    assert not caplog.records
    core.close()
