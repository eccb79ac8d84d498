"""Each client's inputs are transformed in its own way: by how much, whose, and when."""

import numpy as np
import pytest
import torch

from edgefl.data.dataset import content_of_set, load
from edgefl.data.feature_skews import Noise, Rotation
from edgefl.data.federated import load_federated, shard_sizes
from edgefl.data.sets.synthetic import Synthetic
from edgefl.data.spec import data_set
from edgefl.errors import UserError

CLIENTS = 6
SPEC = Synthetic(shape=(2, 9, 9), classes=3, train=120, test_images=60, clients=CLIENTS, test="partitioned")
SKEWS = [Rotation(degrees=180), Noise(std=0.2)]
IMAGES = torch.arange(2 * 3 * 9 * 9, dtype=torch.int64).mul(37).remainder(256).view(2, 3, 9, 9).to(torch.uint8)


def rng(seed=0):
    return np.random.default_rng(seed)


def parameters(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def test_a_quarter_turn_is_torchs_and_turns_each_sample_by_its_own_angle():
    turned = Rotation(degrees=90).apply(IMAGES, parameters([90.0], [-90.0]), rng())
    assert torch.equal(turned[0], torch.rot90(IMAGES[0], 1, (1, 2)))  # counter-clockwise
    assert torch.equal(turned[1], torch.rot90(IMAGES[1], -1, (1, 2)))


def test_noise_grows_with_the_clients_number():
    assert Noise(std=0.4).draw(4, rng())[:, 0].tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4])  # σ·i/N


def test_noise_has_the_standard_deviation_of_the_client():
    grey = torch.full((2, 1, 100, 100), 128, dtype=torch.uint8)
    noisy = Noise(std=0.1).apply(grey, parameters([0.02], [0.1]), rng())
    assert noisy.dtype == torch.uint8
    deviation = (noisy.double() / 255 - 128 / 255).std(dim=(1, 2, 3))
    assert deviation.tolist() == pytest.approx([0.02, 0.1], rel=0.04)
    assert (Noise(std=9).apply(grey, parameters([9.0], [9.0]), rng()).unique()[[0, -1]] == torch.tensor([0, 255])).all()
    numbers = Noise(std=2).apply(torch.zeros(2, 10_000), parameters([0.5], [2.0]), rng())
    assert numbers.dtype == torch.float32
    assert numbers.std(dim=1).tolist() == pytest.approx([0.5, 2.0], rel=0.04)


@pytest.mark.parametrize("skew", SKEWS, ids=repr)
def test_every_clients_samples_are_transformed_and_nobody_elses(skew):
    plain, data = (load_federated(SPEC.model_copy(update={"feature_skew": each}), 2) for each in (None, skew))
    assert np.array_equal(plain.shards.indices, data.shards.indices)
    assert torch.equal(plain.train.labels, data.train.labels)
    for client in range(CLIENTS):
        for one, other, shards in (
            (plain.train, data.train, data.shards),
            (plain.test, data.test, data.evaluation_shards),
        ):
            mine = torch.from_numpy(shards.shard(client))
            assert not torch.equal(one.inputs[mine], other.inputs[mine])
    given = torch.from_numpy(np.setdiff1d(np.arange(120), data.shards.indices))
    assert torch.equal(plain.train.inputs[given], data.train.inputs[given])


def test_a_clients_test_part_has_the_transformation_of_its_training_data():
    skew = Noise(std=0.1)
    plain, data = (load_federated(SPEC.model_copy(update={"feature_skew": each}), 1) for each in (None, skew))
    found = []
    for client in range(CLIENTS):
        parts = (plain.train, data.train, data.shards), (plain.test, data.test, data.evaluation_shards)
        added = []
        for one, other, shards in parts:
            mine = torch.from_numpy(shards.shard(client))
            added.append(float((other.inputs[mine].double() - one.inputs[mine].double()).std()))
        assert added[0] == pytest.approx(added[1], rel=0.1)
        found.append(added[0])
    assert found == sorted(found)
    assert found[-1] > 3 * found[0]


def test_a_whole_test_set_stays_as_it_is_and_so_does_the_cached_set():
    spec = SPEC.model_copy(update={"feature_skew": Noise(std=0.5), "test": "whole"})
    before = [part.inputs.clone() for part in load(SPEC)]
    data = load_federated(spec, 0)
    assert torch.equal(data.test.inputs, before[1])
    assert not torch.equal(data.train.inputs, before[0])
    assert all(torch.equal(part.inputs, kept) for part, kept in zip(load(SPEC), before, strict=True))
    assert content_of_set(spec) == content_of_set(SPEC)
    assert shard_sizes(spec, 0).tolist() == data.sizes.tolist()
    held_out = load_federated(spec, 0, split="validation")
    assert torch.equal(held_out.validation.inputs, load_federated(SPEC, 0, split="validation").validation.inputs)


def test_a_seed_decides_and_repeats():
    spec = SPEC.model_copy(update={"feature_skew": Noise(std=0.3)})
    one, again, other = (load_federated(spec, seed).train.inputs for seed in (5, 5, 6))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


@pytest.mark.parametrize(
    ("skew", "message"),
    [
        ({"kind": "shift"}, "unknown choice 'shift'"),
        ({"kind": "rotation", "degrees": 270}, "expected 180 or less, found 270"),
        ({"kind": "noise", "std": -1}, "expected more than 0, found -1"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_message(skew, message):
    with pytest.raises(UserError, match=message) as refused:
        load(data_set({"name": "synthetic", "clients": 4, "feature_skew": skew}))
    assert "feature_skew" in f"{refused.value.field} {refused.value}"
