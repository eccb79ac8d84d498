import sys
from collections.abc import Iterator, Sequence
from types import SimpleNamespace

import cloudpickle
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from edgefl.data.batches import batch_plan
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.local_part import keeping_local
from edgefl.methods.parts.objective import Batch
from edgefl.models.block_model import BlockModel
from edgefl.models.classifier import Classifier
from edgefl.models.norm import BatchNorm
from edgefl.models.residual import basic_block
from edgefl.models.slimmable import Conv2d, Linear
from edgefl.training.core import TrainingCore
from edgefl.training.job import JobId, TrainingJob
from edgefl.training.job_task import JobTask

SIZES = (7, 12, 5, 20, 9, 3)
RESIDUAL = ("gradaug", "stochdepth")
"""Methods that train residual networks only."""
# A worker process cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class TinyData:
    """Six clients of unequal size with 6×6 images of three classes, whole in memory."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(5)
        total = sum(SIZES)
        self.labels = torch.arange(total) % 3
        self.images = torch.randn(total, 1, 6, 6, generator=generator) + self.labels.view(-1, 1, 1, 1)
        self.starts = np.concatenate([[0], np.cumsum(SIZES)])
        self.clients = len(SIZES)
        self.fetched: list[int] = []

    def shard(self, client: int) -> np.ndarray:
        return np.arange(self.starts[client], self.starts[client + 1])

    def together(self) -> "TinyData":
        return self  # what engines train is the same for all methods

    def samples(self, client: int) -> int:
        return SIZES[client]

    def facts(self, client: int) -> dict[str, Tensor]:
        return {"label_counts": torch.bincount(self.labels[self.shard(client)], minlength=3)}

    def batches(self, task: JobTask) -> Iterator[Batch]:
        self.fetched.append(task.client)
        key = {"seed": task.seed, "client": task.client, "dispatch": task.dispatch}
        plan = batch_plan(self.shard(task.client), task.options, task.steps, **key)
        return (Batch(self.images[indices], self.labels[indices]) for indices in plan)

    def side_by_side(self, tasks: Sequence[JobTask]) -> None:
        return None

    def evaluation(self) -> Sequence[slice]:
        return [slice(start, start + 10) for start in range(0, len(self.labels), 10)]

    def evaluation_batch(self, place: slice) -> Batch:
        return Batch(self.images[place], self.labels[place])


def tiny_model() -> BlockModel:
    blocks = {
        "first": nn.Sequential(Conv2d(1, 8, 3, bias=False), BatchNorm(8), nn.ReLU(), nn.MaxPool2d(2)),
        "second": nn.Sequential(Conv2d(8, 16, 3, bias=True), nn.ReLU()),
        "third": nn.Sequential(nn.Flatten(), Linear(144, 3, slim_outputs=False)),
    }
    return BlockModel(blocks, sample_shape=(1, 6, 6), classes=3, align_block=1)


def few_of(every: Sequence[object], few: Sequence[object]) -> list[object]:
    """Parameters of a test: a few, and all others with the mark ``full``."""
    rest = [each if isinstance(each, tuple) else (each,) for each in every if each not in few]
    return [*few, *(pytest.param(*each, marks=pytest.mark.full) for each in rest)]


def residual_model() -> BlockModel:
    """A tiny model that also suits methods of residual networks only, GradAug and Stochastic Depth."""
    blocks = {
        "conv1": nn.Sequential(Conv2d(1, 4, 3), BatchNorm(4), nn.ReLU()),
        "layer1": basic_block(4, 8, 2, BatchNorm),
        "layer2": basic_block(8, 8, 1, BatchNorm),
        "fc": Classifier(Linear(8, 3, slim_outputs=False), pool=True),
    }
    return BlockModel(blocks, sample_shape=(1, 6, 6), classes=3, align_block=1)


def jobs_of(core, method, round: int, clients: Sequence[int] = range(6)) -> list[TrainingJob]:
    """One job for each client; clients that have a model of their own receive some blocks only, if the method can."""
    method = keeping_local(method, core.model.layout)
    depth, jobs = method.objective.adapt(core.model).depth, []
    for client in clients:
        before = JobId("m", 3, client, round - 1) if method.state is not None and round else None
        alpha = 1 + (client + round) % depth if before and method.payload.sends_blocks else depth
        steps = method.local.steps_for(core.data.samples(client))
        jobs.append(TrainingJob(JobId("m", 3, client, round), round, round, alpha, steps, before))
    return jobs


def train_round(learner, jobs: Sequence[TrainingJob], order: int = 1) -> list[JobId]:
    """Submit and aggregate the jobs."""
    for job in jobs[::order]:
        learner.submit(job)
    ids = [job.id for job in jobs]
    learner.aggregate(jobs[0].version, ids[::order], jobs[0].version)
    return ids


def train_rounds(core, method, count: int = 2, clients: Sequence[int] = range(6), order: int = 1):
    """The last model, and the feedback and evaluations of all rounds."""
    learner, said = core.learner(method), []
    for round in range(count):
        ids = train_round(learner, jobs_of(core, method, round, clients), order)
        said += [*(learner.feedback(job) for job in ids), learner.evaluate(round + 1)]
    return learner.model(count), said


def same(one, other) -> bool:
    """The same bits of two results of :func:`train_rounds`."""
    return torch.equal(one[0], other[0]) and one[1] == other[1]


@pytest.fixture
def tiny() -> SimpleNamespace:
    """A tiny data set and model with batch norm, and what it takes to train on them."""
    local = LocalOptions(epochs=2, batch=4, lr=0.1, lr_decay=0.9, weight_decay=1e-3, clip_norm=5.0)

    def core(engine: str = "sequential", workers: int | None = None, model: BlockModel | None = None) -> TrainingCore:
        return TrainingCore(TinyData(), model or tiny_model(), 3, engine=engine, workers=workers)

    def method(entry: object, **changes: object) -> object:
        return build_method(entry, local.model_copy(update=changes))

    def job(client: int, version: int = 0, *, dispatch: int = 0, alpha: int = 3, previous: int | None = None, **more):
        before = None if previous is None else JobId("m", 3, client, previous)
        steps = more.pop("steps", local.steps_for(SIZES[client]))
        return TrainingJob(JobId("m", 3, client, dispatch), version, version, alpha, steps, before)

    return SimpleNamespace(core=core, method=method, job=job, local=local, model=tiny_model, data=TinyData, sizes=SIZES)
