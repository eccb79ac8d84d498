import numpy as np
import pytest
import torch

from edgefl.data.batches import StackedBatches, job_batches
from edgefl.data.dataset import load
from edgefl.data.federated import evaluation_sizes, load_federated, shard_sizes
from edgefl.data.partitions import Dirichlet, Iid, LabelLevel, SortAndPartition
from edgefl.data.sets.digits import Digits
from edgefl.data.sets.synthetic import Synthetic
from edgefl.data.spec import Normalisation
from edgefl.errors import UserError
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.training.job_task import ClientData

SMALL = Synthetic(shape=(2, 6, 6), classes=5, train=1003, test_images=101, clients=10)
PARTITIONS = [
    Iid(),
    LabelLevel(level=7),
    LabelLevel(level=6, form="missing"),
    SortAndPartition(s=2),
    Dirichlet(alpha=0.3),
    Dirichlet(alpha=0.3, order="random_client"),
    Dirichlet(alpha=1, balanced=False),
    Dirichlet(alpha=1, balanced=False, form="client_wise"),
]


@pytest.mark.parametrize("partition", PARTITIONS, ids=repr)
def test_sizes_without_pixels_are_those_of_the_shards(partition):
    spec = SMALL.model_copy(update={"partition": partition})
    data = load_federated(spec, seed=4, split="validation")
    assert shard_sizes(spec, 4, "validation").tolist() == data.sizes.tolist()
    assert data.label_counts.sum(axis=1).tolist() == data.sizes.tolist()
    labels = data.train.labels.numpy()
    assert np.bincount(labels[data.shards.shard(3)], minlength=5).tolist() == data.label_counts[3].tolist()


def test_a_hundred_thousand_clients_need_no_images():
    for partition in (Iid(), LabelLevel(level=7), SortAndPartition(s=5), Dirichlet(alpha=0.3)):
        spec = Synthetic(clients=131_072, train=131_072 * 10, partition=partition)
        sizes = shard_sizes(spec, 0)
        assert len(sizes) == 131_072
        assert len(set(sizes.tolist())) == 1
        assert sizes[0] in (9, 10)


def test_the_validation_split_takes_its_images_away_from_training():
    spec = Digits(clients=20)
    whole = load_federated(spec, 0)
    assert whole.validation is None
    assert whole.evaluation is whole.test
    assert (len(whole.train), len(whole.test)) == (12_000, 600)
    tuned = load_federated(spec, 0, split="validation")
    assert tuned.evaluation is tuned.validation
    assert len(tuned.train) + len(tuned.validation) == 12_000
    assert not set(tuned.train.origin.tolist()) & set(tuned.validation.origin.tolist())
    assert abs(len(tuned.validation) - 1200) < 60
    assert torch.equal(tuned.test.inputs, whole.test.inputs)


def test_seeds_cut_the_same_images_in_different_ways():
    first, second = load_federated(SMALL, 0), load_federated(SMALL, 1)
    assert torch.equal(first.train.inputs, second.train.inputs)
    assert first.shards.indices.tolist() != second.shards.indices.tolist()
    assert first.shards.indices.tolist() == load_federated(SMALL, 0).shards.indices.tolist()


def test_a_partitioned_test_set_has_the_proportions_of_the_training_data():
    options = {"classes": 10, "train": 2000, "test": "partitioned", "test_images": 200, "clients": 10}
    spec = Synthetic(shape=(1, 4, 4), partition=LabelLevel(level=7), **options)
    data = load_federated(spec, 0)
    assert evaluation_sizes(spec, 0).tolist() == data.evaluation_shards.sizes.tolist()
    assert evaluation_sizes(SMALL, 0).tolist() == [101] * 10
    counts = data.evaluation_shards.label_counts(data.test.labels.numpy(), 10)
    assert counts.sum() == 200
    assert np.abs(counts - data.label_counts / 10).max() < 1
    assert load_federated(SMALL, 0).evaluation_shards is None


def test_statistics_are_those_of_the_training_pixels_unless_others_are_set():
    train, test = load(SMALL)
    pixels = train.inputs.numpy() / 255
    assert train.mean == pytest.approx(pixels.mean(axis=(0, 2, 3)))
    assert train.std == pytest.approx(pixels.std(axis=(0, 2, 3)))
    assert (test.mean, test.std) == (train.mean, train.std)
    other = load(SMALL.model_copy(update={"normalise": Normalisation(mean=(0.1, 0.2), std=(1, 2))}))[0]
    assert (other.mean, other.std) == ((0.1, 0.2), (1, 2))


def test_a_partition_that_only_the_validation_split_breaks_is_refused_too():
    spec = Synthetic(shape=(1, 4, 4), classes=2, train=20, test_images=4, clients=20)
    load_federated(spec, 0)
    with pytest.raises(UserError, match="at most 18 clients, one for each training sample, found 20"):
        load_federated(spec, 0, split="validation")


def test_inputs_without_room_on_the_device_stay_in_main_memory(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    spec = SMALL.model_copy(update={"test": "partitioned"})
    size = load_federated(spec, 0).train.bytes + load_federated(spec, 0).test.bytes
    assert load_federated(spec, 0, "meta", room=size).train.store.type == "meta"
    data = load_federated(spec, 0, "meta", room=size - 1)  # a device without numbers, which refuses a wrong one
    assert (data.train.store.type, data.train.device.type, data.test.store.type) == ("cpu", "meta", "cpu")
    source = ClientData(data)
    batches = [source.evaluation_batch(place) for place in source.evaluation()]
    plan = {"steps": 2, "seed": 0, "dispatch": 0}
    jobs = [
        job_batches(data.train, "crop_flip", data.shards.shard(k), LocalOptions(batch=8), client=k, **plan)
        for k in (0, 1)
    ]
    batches += [*jobs[0].in_turn(), StackedBatches.of(jobs).step(1)]
    assert {tensor.device.type for batch in batches for tensor in batch} == {"meta"}
    assert [tuple(batch.inputs.shape) for batch in batches[-3:]] == [(8, 2, 6, 6), (8, 2, 6, 6), (2, 8, 2, 6, 6)]
