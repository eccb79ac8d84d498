"""Metric and loss of the evaluation split, and the loss of the server's model on a client's own images."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from edgefl.data.batches import fetch
from edgefl.data.federated import load_federated
from edgefl.data.sets.synthetic import Synthetic
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.models.mode import using
from edgefl.models.registry import MODELS
from edgefl.scenario.loading import check
from edgefl.tasks.classification import Classification
from edgefl.training.core import TrainingCore
from edgefl.training.evaluation import BatchScore, total
from edgefl.training.job_task import ClientData

from ..small_runs import SMALL


def test_accuracy_and_loss_are_those_of_the_whole_split_in_one_batch(tiny):
    core = tiny.core()
    said = core.learner(tiny.method("fedavg")).evaluate(0)
    model, data = tiny.model().eval(), core.data
    for block, tensors in zip(
        model.blocks.values(), core.model.layout.weights(*core.model.layout.split(core.initial)), strict=True
    ):
        block.load_state_dict(tensors)
    with torch.no_grad(), using(training=False):
        logits = model(data.images)
    assert said.metric == float((logits.argmax(1) == data.labels).double().mean())
    assert said.loss == pytest.approx(float(F.cross_entropy(logits, data.labels)), rel=1e-5)


def test_an_empty_split_has_no_accuracy():
    with pytest.raises(ValueError, match="empty"):
        total([], Classification())


def test_a_loss_without_a_number_is_reported_as_it_is():
    scores = [BatchScore((1.0, 2.0), loss, 2) for loss in (math.inf, 1.0, math.nan)]
    assert total(scores, Classification()).metric == 0.5
    assert math.isnan(total(scores, Classification()).loss)


@pytest.mark.parametrize("test", ["whole", "partitioned"])
def test_clients_data_say_what_the_data_set_says(test):
    spec = Synthetic(clients=5, shape=(1, 8, 8), classes=3, train=300, test_images=150, test=test)
    data = load_federated(spec, seed=0)
    facts = ClientData(data)
    assert facts.clients == 5
    assert sum(facts.samples(client) for client in range(5)) == 300
    assert all(int(facts.facts(client)["label_counts"].sum()) == facts.samples(client) for client in range(5))
    evaluated = len(data.test) if data.evaluation_shards is None else len(data.evaluation_shards.indices)
    batches = [facts.evaluation_batch(place) for place in facts.evaluation()]
    assert sum(len(batch.labels) for batch in batches) == evaluated
    with TrainingCore.of(data, MODELS["cnn"](), 0, engine="sequential") as core:
        assert core.engine_name == "sequential"
        assert core.initial.shape == (core.model.layout.size,)


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
