"""Worker processes that train: the same bits, and one process with a warning where they cannot do it."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading

import cloudpickle
import pytest

from edgefl.methods.fedavg import CrossEntropy
from edgefl.training.engines.parallel import ParallelEngine
from edgefl.training.faults import TrainingFault
from edgefl.training.parallel.worker_pool import shared_pool

from .conftest import same, train_rounds

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("worker_processes")]
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # a worker process cannot import the tests


def engine_of(core) -> ParallelEngine:
    return core._own.engine


def with_workers(tiny):
    """A core whose jobs worker processes train, and its engine."""
    core = tiny.core("parallel", 2)
    shared_pool(2)._first.result()
    assert engine_of(core)._ready_pool() is not None
    return core, engine_of(core)


def workers_of(engine) -> list[int]:
    return list(engine._pool._pool._executor._processes)


def trained_by_workers(engine) -> list[int]:
    """The number of jobs of each call of the worker processes."""
    jobs, train = [], engine._pool.train
    engine._pool.train = lambda tasks, *rest: jobs.append(len(tasks)) or train(tasks, *rest)
    return jobs


def with_objective(tiny, objective):
    method = tiny.method("fedavg")
    object.__setattr__(method, "objective", objective)
    return method


@pytest.fixture
def reference(tiny):
    """The sequential result of FedAvg."""
    return train_rounds(tiny.core(), tiny.method("fedavg"))


def test_vectors_without_room_in_the_shared_buffer_travel_with_the_message(tiny, monkeypatch):
    monkeypatch.setattr("edgefl.training.engines.parallel._VECTORS", 0)
    method = tiny.method("scaffold")
    core, engine = with_workers(tiny)
    assert same(train_rounds(tiny.core(), method), train_rounds(core, method))
    assert engine._pool is not None
    core.close()


def test_one_process_trains_without_shared_memory(tiny, reference, monkeypatch, caplog):
    def full(size):
        raise OSError("no room")

    shared_pool(2)._first.result()
    monkeypatch.setattr("edgefl.training.engines.parallel.Buffer", full)
    core = tiny.core("parallel", 2)
    assert same(reference, train_rounds(core, tiny.method("fedavg")))
    assert engine_of(core)._pool is None
    assert "no shared memory is available" in caplog.text


def test_one_process_trains_until_worker_processes_have_started(tiny, reference, monkeypatch):
    core, started = tiny.core("parallel", 2), []

    class Starting:
        size, broken, ready = 2, False, False

    def found(workers, *, begin, modules):
        if begin and not started:
            started.append(Starting())
        return started[-1] if started else None

    monkeypatch.setattr("edgefl.training.engines.parallel.shared_pool", found)
    engine, method = engine_of(core), tiny.method("fedavg")
    assert same(reference, train_rounds(core, method))
    assert not started, "a short run starts no worker processes"
    engine._settled = 0
    assert same(reference, train_rounds(core, method))
    assert len(started) == 1
    assert engine._pool is None
    pool = shared_pool(2)
    pool._first.result()
    started.append(pool)
    assert same(reference, train_rounds(core, method))
    assert engine._pool is not None
    core.close()


class Unpicklable(CrossEntropy):
    def __reduce__(self):
        raise ValueError("not for pickling")


def test_one_process_trains_what_cannot_be_sent_and_workers_train_the_rest(tiny, reference, caplog):
    other, (core, engine) = tiny.method("fedprox"), with_workers(tiny)
    assert same(reference, train_rounds(core, with_objective(tiny, Unpicklable())))
    assert len(caplog.records) == 1
    assert "training uses one process only" in caplog.text
    jobs = trained_by_workers(engine)
    assert same(train_rounds(tiny.core(), other), train_rounds(core, other))
    assert sum(jobs) == 12
    core.close()


class Broken(CrossEntropy):
    def loss(self, *arguments):
        raise KeyError("lost")


def test_a_fault_in_a_worker_process_names_client_round_and_step_and_other_methods_go_on(tiny, reference, caplog):
    core, engine = with_workers(tiny)
    with pytest.raises(TrainingFault, match=r"client ., round 1, local step 1: KeyError: 'lost'"):
        train_rounds(core, with_objective(tiny, Broken()))
    assert same(reference, train_rounds(core, tiny.method("fedavg")))
    assert engine._pool is not None
    assert not caplog.records
    core.close()


def test_threads_share_the_worker_processes_which_outlive_them(tiny, reference):
    found, workers = [], []

    def one_call():
        core, engine = with_workers(tiny)
        found.append(same(reference, train_rounds(core, tiny.method("fedavg"))))
        workers.append(set(workers_of(engine)))
        core.close()

    threads = [threading.Thread(target=one_call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    one_call()
    assert found == [True] * 3
    assert workers[0] == workers[1] == workers[2]


def test_another_pool_starts_some_time_after_a_worker_process_was_killed(tiny, reference, caplog):
    method, (core, engine) = tiny.method("fedavg"), with_workers(tiny)
    os.kill(workers_of(engine)[0], signal.SIGKILL)
    assert same(reference, train_rounds(core, method))
    assert engine._pool is None
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "training continues in this process" in caplog.text
    engine._seconds += 1000  # as if it had trained for long
    train_rounds(core, method)
    shared_pool(2)._first.result()
    assert same(reference, train_rounds(core, method))
    assert engine._pool is not None
    assert len(caplog.records) == 1
    core.close()
