"""Methods through the learner: three rounds on a tiny set lower the loss, and nothing writes to a snapshot."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.objective import Batch
from edgefl.methods.recipe import METHODS
from edgefl.models.block_model import BlockModel
from edgefl.models.classifier import Classifier
from edgefl.models.norm import GroupNorm
from edgefl.models.residual import basic_block
from edgefl.models.slimmable import Conv2d, Linear
from edgefl.record.names import BASELINES
from edgefl.training.core import TrainingCore
from edgefl.training.job import JobId, TrainingJob
from edgefl.training.job_task import JobTask
from edgefl.training.kept_states import EnsembleSpec, KeptModels

LOCAL = LocalOptions(epochs=1, batch=8, lr=0.05, clip_norm=5)
CLIENTS, IMAGES = 6, 16


class Shards:
    """Six clients with sixteen 8×8 images each, whose brightness gives their class away; two classes a client."""

    clients = CLIENTS

    def __init__(self) -> None:
        draws = torch.Generator().manual_seed(0)
        self.labels = torch.tensor([(client + image % 2) % 3 for client in range(CLIENTS) for image in range(IMAGES)])
        noise = torch.randn(len(self.labels), 1, 8, 8, generator=draws)
        self.images = 0.5 * noise + self.labels.view(-1, 1, 1, 1) - 1.0

    def samples(self, client: int) -> int:
        return IMAGES

    def facts(self, client: int) -> dict[str, Tensor]:
        own = slice(client * IMAGES, (client + 1) * IMAGES)
        return {"label_counts": torch.bincount(self.labels[own], minlength=3)}

    def batches(self, task: JobTask) -> Iterator[Batch]:
        for step in range(task.steps):
            start = task.client * IMAGES + step % 2 * 8
            yield Batch(self.images[start : start + 8], self.labels[start : start + 8])

    def side_by_side(self, tasks: object) -> None:
        return None

    def evaluation(self) -> Sequence[slice]:
        return [slice(0, len(self.labels))]

    def evaluation_batch(self, place: slice) -> Batch:
        return Batch(self.images[place], self.labels[place])


def three_rounds(name: str) -> list[float]:
    """Loss of the first model and of the last of three rounds with two cohorts that overlap.

    What a snapshot gave after a round is written while the next ones run, so nobody may have written to it by the end.
    """
    method = build_method(name, LOCAL)
    norm = partial(GroupNorm, 2)
    blocks = {
        "conv1": nn.Sequential(Conv2d(1, 8, 3), norm(8), nn.ReLU()),
        "layer1": basic_block(8, 8, 1, norm),
        "layer2": basic_block(8, 16, 2, norm),
        "fc": Classifier(Linear(16, 3, slim_outputs=False), pool=True),
    }
    model = BlockModel(blocks, sample_shape=(1, 8, 8), classes=3, align_block=2)
    depth = method.objective.adapt(model).depth
    last: dict[int, JobId] = {}
    snapshots: list[tuple[Tensor, Tensor]] = []
    with TrainingCore(Shards(), model, 0, engine="sequential") as core:
        learner = core.learner(method, KeptModels(EnsembleSpec(), clients=True))
        scores = [learner.evaluate(0)]
        for t in range(3):
            ids = []
            for client in (0, 1, 2, 3) if t % 2 == 0 else (2, 3, 4, 5):
                id = JobId(name, 0, client, t)
                # A partial round of FedBR needs a client that holds a model.
                alpha = 1 + client % 3 if method.payload.partial(t) and client in last else depth
                previous = last.get(client) if method.state is not None else None
                learner.submit(TrainingJob(id, t, t, alpha, LOCAL.steps_for(IMAGES), previous))
                last[client] = id
                ids.append(id)
            learner.aggregate(t, ids, t)
            snapshots += [(tensor, tensor.clone()) for tensor in learner.snapshot()[0].values()]
        scores.append(learner.evaluate(3))
    assert all(torch.equal(tensor, then) for tensor, then in snapshots)
    return [score.loss for score in scores]


DIFFERENT = ("scaffold", "fedadc+", "fedbr", "fjord")
"""Client state, a server vector and a teacher, partial models, narrower models."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in DIFFERENT else pytest.mark.full)
        for name in METHODS.names()
        if name not in BASELINES  # clients that train alone may fit only themselves
    ],
)
def test_three_rounds_lower_the_loss(name) -> None:
    first, last = three_rounds(name)
    assert math.isfinite(last)
    # Below the loss of the same guess for every image as well, which a model reaches without learning from images.
    assert last < min(first, math.log(3))
