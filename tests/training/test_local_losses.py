"""The loss of the server's model on a client's own images, against PyTorch's cross-entropy on them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edgefl.data.batches import fetch
from edgefl.data.federated import load_federated
from edgefl.methods.build import build_method
from edgefl.methods.local_options import LocalOptions
from edgefl.models.mode import using
from edgefl.models.registry import MODELS
from edgefl.scenario.loading import check
from edgefl.training.core import TrainingCore

from ..small_runs import SMALL


@pytest.fixture(name="world", scope="module")
def world_fixture():
    data = load_federated(check(SMALL).data, 0, "cpu")
    with TrainingCore.of(data, MODELS["cnn"](width=2), 0, engine="sequential") as core:
        yield data, core, core.learner(build_method("fedavg", LocalOptions(epochs=1, batch=16, lr=0.1)))


def by_hand(data, core, learner, positions):
    batch = fetch(data.train, positions)
    model = core.model
    with torch.no_grad(), using(training=False, track=False):
        outputs = model.apply_blocks(model.layout.frozen(*model.layout.split(learner.model(0))), batch.inputs)
    return float(torch.nn.functional.cross_entropy(outputs.double(), batch.labels))


def test_a_local_loss_is_the_mean_cross_entropy_of_the_clients_images(world):
    data, core, learner = world
    expected = [by_hand(data, core, learner, data.shards.shard(client)) for client in (1, 6)]
    assert learner.local_losses(0, [1, 6], None) == pytest.approx(expected, rel=1e-5)
    assert expected[0] != pytest.approx(expected[1], rel=1e-3)


def test_a_loss_on_some_images_is_that_of_a_fixed_draw_of_them(world):
    data, core, learner = world
    shard = data.shards.shard(2)
    once = learner.local_losses(0, [2], 1)
    assert once == learner.local_losses(0, [2], 1)
    alone = [by_hand(data, core, learner, np.array([position])) for position in shard]
    assert min(abs(once[0] - each) for each in alone) < 1e-5
    assert learner.local_losses(0, [2], 10_000) == learner.local_losses(0, [2], None)
