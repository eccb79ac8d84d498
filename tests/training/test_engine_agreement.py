import pytest
import torch

from edgefl.training.client_data import ClientData
from edgefl.training.core import TrainingCore
from edgefl.training.faults import TrainingFault
from edgefl.training.job import JobId, TrainingJob
from edgefl.training.parallel.engine import ParallelEngine
from edgefl.training.parallel.pool_training import PoolTraining
from edgefl.training.parallel.worker_pool import shared_pool
from edgefl.training.sequential import SequentialEngine

METHODS = [
    "fedavg",
    "fedprox",
    "fedalign",
    "fedbr",
    "fedmlb",
    {"method": "fedadc"},
    {"method": "fedadc", "variant": "blue"},
]
CPU = torch.device("cpu")


def three_rounds(core, method, order=1):
    """Every round all clients train; their models, feedback and evaluations come back as plain numbers."""
    learner, said = core.learner(method), []
    for round in range(3):
        jobs = []
        for client in range(6):
            before = JobId("m", 3, client, round - 1) if method.state is not None and round else None
            some = before is not None and method.payload.sends_blocks
            alpha = 1 + (client + round) % core.model.depth if some else core.model.depth
            steps = method.local.steps_for(core.data.samples(client))
            jobs.append(TrainingJob(JobId("m", 3, client, round), round, round, alpha, steps, before))
        for job in jobs[::order]:
            learner.submit(job)
        learner.aggregate(round, [job.id for job in jobs[::order]], round)
        said += [learner.feedback(job.id) for job in jobs]
        said.append(learner.evaluate(round + 1))
    return learner.model(3), said


def same(one, other):
    return torch.equal(one[0], other[0]) and one[1] == other[1]


@pytest.mark.parametrize("entry", METHODS, ids=str)
def test_any_engine_number_of_workers_and_order_gives_the_same_bits(tiny, entry):
    options = {"drop_last": True} if entry == "fedalign" else {}
    method = tiny.method(entry, **options)
    reference = three_rounds(tiny.core("sequential"), method)
    assert same(reference, three_rounds(tiny.core("sequential"), method, order=-1))
    for workers in (1, 2, 5):
        assert same(reference, three_rounds(tiny.core("parallel", workers), method, order=-1))


def test_the_small_cnn_trains_to_the_same_bits_on_many_threads_whatever_intra_op_threads_were_set():
    from edgefl.data.federated import load_federated
    from edgefl.data.sets.synthetic import Synthetic
    from edgefl.methods.build import build_method
    from edgefl.methods.local_options import LocalOptions
    from edgefl.models.registry import MODELS

    data = load_federated(Synthetic(clients=6, shape=(1, 28, 28), classes=4, train=600, test_images=200), seed=3)
    method = build_method("fedavg", LocalOptions(batch=32, lr=0.1))
    models, before = [], torch.get_num_threads()
    try:
        for threads, engine, workers in ((1, "sequential", None), (4, "sequential", None), (4, "parallel", 3)):
            torch.set_num_threads(threads)
            with TrainingCore.of(data, MODELS["cnn"](), 3, engine=engine, workers=workers) as core:
                assert isinstance(core.data, ClientData)
                models.append(three_rounds(core, method))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert same(models[0], models[1])
    assert same(models[0], models[2])


def tasks_of(tiny, clients=range(6)):
    """The tasks that a learner hands to its engine, caught on the way."""
    caught = []
    core = tiny.core()
    learner = core.learner(tiny.method("fedavg"))
    train = learner._engine.train
    learner._engine.train = lambda tasks, arrived: caught.extend(tasks) or train(tasks, arrived)
    for client in clients:
        learner.submit(tiny.job(client))
    learner.aggregate(0, [JobId("m", 3, client, 0) for client in clients], 0)
    return caught


@pytest.mark.usefixtures("worker_processes")
def test_results_come_in_the_order_of_the_tasks_though_worker_processes_train_the_longest_first(tiny, monkeypatch):
    tasks, data, orders = tasks_of(tiny), tiny.data(), []
    train = PoolTraining.train
    monkeypatch.setattr(PoolTraining, "train", lambda self, *args: orders.append(args[1]) or train(self, *args))
    shared_pool(2).wait()
    results = ParallelEngine(tiny.model(), data, 2).train(tasks)
    assert [len(result.batch_sizes) for result in results] == [task.steps for task in tasks]
    assert [[tasks[index].steps for index in order] for order in orders] == [
        sorted((task.steps for task in tasks), reverse=True)
    ]
    alone = [SequentialEngine(tiny.model(), data, CPU).train([task])[0] for task in tasks]
    assert all(torch.equal(one.final, other.final) for one, other in zip(results, alone, strict=True))


def test_training_leaves_the_start_and_the_skeleton_as_they_were(tiny):
    task, model = tasks_of(tiny)[0], tiny.model()
    start, own = task.start.clone(), [tensor.clone() for tensor in model.state_dict().values()]
    result = SequentialEngine(model, tiny.data(), CPU).train([task])[0]
    assert torch.equal(task.start, start)
    assert not torch.equal(result.final, start)
    # The skeleton's own numbers were never set, so some may be NaN.
    after = model.state_dict().values()
    assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(own, after, strict=True))


class Failing:
    """Data whose client 3 breaks in its third batch, or asks for the keyboard."""

    def __init__(self, inner, error):
        self.inner, self.error = inner, error

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def batches(self, task):
        for step, batch in enumerate(self.inner.batches(task)):
            if task.client == 3 and step == 2:
                raise self.error
            yield batch


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_a_failing_step_is_told_with_method_client_round_and_step(tiny, workers):
    data = Failing(tiny.data(), ValueError("torn page"))
    model = tiny.model()
    engine = ParallelEngine(model, data, workers) if workers else SequentialEngine(model, data, CPU)
    with pytest.raises(
        TrainingFault, match="method 'fedavg', client 3, round 1, local step 3: ValueError: torn page"
    ) as told:
        engine.train(tasks_of(tiny))
    assert isinstance(told.value.__cause__, ValueError)


def test_no_tasks_give_no_results(tiny):
    assert SequentialEngine(tiny.model(), tiny.data(), CPU).train([]) == []
    assert ParallelEngine(tiny.model(), tiny.data(), 2).train([]) == []


def test_an_engine_without_workers_is_refused(tiny):
    with pytest.raises(ValueError, match="at least one worker, not 0"):
        ParallelEngine(tiny.model(), tiny.data(), 0)
