"""Calibration against logistic regression by hand, and what its options must come to."""

import numpy as np
import pytest
import torch
from torch import nn

from edgefl.data.batches import job_batches
from edgefl.data.federated import load_federated
from edgefl.data.sets.synthetic import Synthetic
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.models.mode import using
from edgefl.models.registry import MODELS, build_model, initial_vector
from edgefl.tasks.classification import Classification
from edgefl.training.engines.sequential import SequentialEngine
from edgefl.training.job_task import ClientData
from edgefl.training.personalisation import (
    DISPATCH,
    CalibrationSpec,
    ClientMetric,
    last_block,
    metric_of_one,
    personalised_metric,
    scores_of,
)

LOCAL = LocalOptions(epochs=1, batch=8, lr=0.5, lr_decay=0.9, weight_decay=0.01)


def spec(**options):
    return CalibrationSpec(kind="calibration", **options)


@pytest.fixture
def world():
    section = Synthetic(
        shape=(1, 8, 8), classes=4, train=240, test_images=80, test="partitioned", clients=6,
        partition={"kind": "dirichlet", "alpha": 0.5, "balanced": True},
    )  # fmt: skip
    data = load_federated(section, seed=0)
    model = build_model(MODELS["cnn"](width=2, norm="batch"), data.shape, data.classes)
    return data, ClientData(data), model, initial_vector(model, 5)


def train(world, calibration, method="fedavg", round=3):
    data, jobs, model, final = world
    trained = []

    class Engine(SequentialEngine):
        def train(self, tasks):
            results = super().train(tasks)
            trained.extend(zip(tasks, (each.final for each in results), strict=True))
            return results

    engine = Engine(model, jobs)
    built = build_method(method, LOCAL)
    personalised_metric(calibration, built, final, round, model=model, data=data, jobs=jobs, engine=engine, seed=0)
    return tuple(zip(*trained, strict=True))


def test_it_is_logistic_regression_on_the_features_of_a_frozen_body(world):
    data, _, model, final = world
    tasks, results = train(world, spec(epochs=2, lr=0.3))
    client = 2
    plan = job_batches(
        data.train, "none", data.shards.shard(client), tasks[client].options, tasks[client].steps,
        seed=0, client=client, dispatch=DISPATCH,
    )  # fmt: skip
    weights = model.layout.weights(*model.layout.split(final))
    head = nn.Linear(8, 4).double()
    with torch.no_grad():
        for mine, theirs in zip(head.parameters(), weights[-1].values(), strict=True):
            mine.copy_(theirs)
    optimiser = torch.optim.SGD(head.parameters(), lr=0.3, weight_decay=0.01)
    for step in range(len(plan)):
        batch = plan.step(step)
        with torch.no_grad(), using(training=False, track=False):
            features = model.apply_blocks(weights, batch.inputs, stop=model.depth - 1).double()
        optimiser.zero_grad()
        nn.functional.cross_entropy(head(features), batch.labels).backward()
        optimiser.step()
    expected = torch.cat([tensor.detach().reshape(-1) for tensor in head.parameters()])
    found = results[client][: model.layout.parameter_count][
        last_block(model, final[: model.layout.parameter_count]) > 0
    ]
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"proximal": 0.5}, {"self_confidence": True}])
def test_the_body_and_its_statistics_stay_to_the_last_bit(world, options):
    _, _, model, final = world
    _, results = train(world, spec(**options))
    count = model.layout.parameter_count
    body = torch.cat([last_block(model, final[:count]) == 0, torch.ones(model.layout.buffer_count, dtype=torch.bool)])
    for result in results:
        assert torch.equal(result[body], final[body])
        assert not torch.equal(result[~body], final[~body])


def test_self_confidence_of_a_client_that_holds_all_classes_alike_is_cross_entropy():
    section = Synthetic(
        shape=(1, 8, 8), classes=4, train=160, test_images=80, test="partitioned", clients=1,
    )  # fmt: skip
    data = load_federated(section, seed=0)
    assert np.ptp(data.label_counts) == 0
    model = build_model(MODELS["cnn"](width=2), data.shape, data.classes)
    world = (data, ClientData(data), model, initial_vector(model, 5))
    plain, confident = train(world, spec())[1], train(world, spec(self_confidence=True))[1]
    for one, other in zip(plain, confident, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_without_a_rate_of_its_own_it_takes_that_of_the_next_round(world):
    tasks, _ = train(world, spec(epochs=3), round=2)
    assert tasks[0].lr == pytest.approx(0.5 * 0.9**2)
    assert tasks[0].steps == 3 * 5


def test_accuracies_are_those_of_each_clients_own_model_on_its_own_part(world):
    data, jobs, model, final = world
    calibration = spec(lr=0.3)
    found = personalised_metric(
        calibration, build_method("fedavg", LOCAL), final, 3, model=model, data=data, jobs=jobs,
        engine=SequentialEngine(model, jobs), seed=0,
    )  # fmt: skip
    _, results = train(world, calibration)
    for client, result in enumerate(results):
        part = data.evaluation_shards.shard(client)
        assert found.sums[client][0] == int(scores_of(result, model, data.test, part, {})[:, 0].sum())
    shared = metric_of_one(final, model, data.test, data.evaluation_shards, {})
    assert found.cumulative > shared.cumulative
    parts = [scores_of(final, model, data.test, data.evaluation_shards.shard(k), {})[:, 0].sum() for k in range(6)]
    assert shared.sums[:, 0].tolist() == [int(part) for part in parts]


def test_means_count_clients_or_images():
    accuracy = ClientMetric(np.array([[1.0, 2], [30, 40], [0, 0]]), np.array([2, 40, 0]), Classification())
    assert accuracy.mean == pytest.approx((0.5 + 0.75) / 2)
    assert accuracy.cumulative == pytest.approx(31 / 42)
    assert accuracy.worst_tenth == 0.5
    assert np.isnan(accuracy.each[2])
