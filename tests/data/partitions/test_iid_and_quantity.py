"""Partitions of equal shares, of unequal sizes, and of shards."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from edgefl.data.partitions import Iid, Quantity, Sizes, SortAndPartition
from edgefl.data.partitions.iid import class_assignment
from edgefl.data.sharding import cut_like_training
from edgefl.errors import UserError


@settings(max_examples=30)
@given(images=st.integers(1, 300), clients=st.integers(1, 300), seed=st.integers(0, 9))
def test_shards_are_equal_and_disjoint_and_leave_less_than_one_image_for_each_client(images, clients, seed):
    if clients > images:
        clients = images
    shards = Iid().split(np.zeros(images, dtype=np.int64), 1, clients, np.random.default_rng(seed))
    assert shards.sizes.tolist() == [images // clients] * clients
    assert len(np.unique(shards.indices)) == len(shards.indices) > images - clients


def test_every_image_is_as_likely_as_any_other_to_belong_to_a_client():
    rng = np.random.default_rng(1)
    owned = np.zeros(12)
    for _ in range(1000):
        owned[Iid().split(np.zeros(12, dtype=np.int64), 1, 4, rng).shard(2)] += 1
    # A quarter of 1000, and five standard deviations of a binomial count around it.
    assert np.abs(owned - 250).max() < 5 * np.sqrt(1000 * 0.25 * 0.75)


@settings(max_examples=30)
@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=6).filter(lambda sizes: sum(sizes) > 20),
    st.integers(1, 7),
    st.sampled_from([0.0, 0.5, 2.0, 10.0]),
    st.integers(1, 3),
    st.integers(0, 9),
)
def test_every_image_belongs_to_one_client_and_every_client_has_the_least(sizes, clients, sigma, least, seed):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    partition = Quantity(sigma=sigma, min_size=least)
    shards = partition.split(labels, len(sizes), clients, np.random.default_rng(seed))
    assert sorted(shards.indices.tolist()) == list(range(sum(sizes)))
    assert shards.sizes.min() >= least
    assert partition.sizes(np.array(sizes), clients, np.random.default_rng(seed)).tolist() == shards.sizes.tolist()
    if sigma == 0:
        assert np.ptp(shards.sizes) <= 1


def test_the_logarithms_of_sizes_have_the_standard_deviation():
    sizes = Quantity(sigma=0.8).sizes(np.array([10**8]), 5000, np.random.default_rng(0))
    # The error of a standard deviation of 5000 normal draws is 1 %.
    assert np.log(sizes).std() == pytest.approx(0.8, rel=0.04)


def test_classes_are_random_on_every_client():
    labels = np.arange(20_000) % 4
    counts = Quantity().split(labels, 4, 4, np.random.default_rng(0)).label_counts(labels, 4)
    sizes = counts.sum(axis=1, keepdims=True)
    assert (np.abs(counts / sizes - 0.25) < 5 * np.sqrt(0.25 * 0.75 / sizes)).all()


def test_given_sizes_are_drawn_from_all_samples_or_from_the_owners():
    labels, owner = np.arange(100) % 4, np.repeat([0, 1, 2], [20, 50, 30])
    draws = np.random.default_rng
    assert Sizes(images=(7, 40, 3)).split(labels, 4, 3, draws(0)).sizes.tolist() == [7, 40, 3]
    shards = Sizes(images=(7, 40, 3), owners=True).split(labels, 4, 3, draws(0), owner)
    assert [(len(set(shard)), set(owner[shard])) for shard in map(shards.shard, range(3))] == [
        (7, {0}), (40, {1}), (3, {2})
    ]  # fmt: skip
    with pytest.raises(UserError, match="asks for 21 samples of owner 0, who has 20"):
        Sizes(images=(21, 40), owners=True).split(labels, 4, 2, draws(0), owner)
    with pytest.raises(UserError, match="asks for 101 samples in total, there are 100"):
        Sizes(images=(61, 40)).check(np.array([50, 50]), 2)
    with pytest.raises(UserError, match="a number for each of 3 clients, found 2"):
        Sizes(images=(1, 1)).check(np.array([50, 50]), 3)


def test_too_few_images_are_refused():
    with pytest.raises(UserError, match=r"at least 5 samples .* \(min_size\), found 14 training samples for 3"):
        Quantity(min_size=5).check(np.array([7, 7]), 3)
    with pytest.raises(UserError, match="expected at most 2 clients"):
        Quantity().check(np.array([1, 1]), 3)


@settings(max_examples=30)
@given(
    arrays(np.int64, st.tuples(st.integers(1, 12), st.integers(1, 5)), elements=st.integers(0, 50)), st.integers(0, 9)
)
def test_each_class_is_shared_out_within_one_image_of_the_training_proportions(training, seed):
    classes = training.shape[1]
    labels = np.repeat(np.arange(classes), 20)
    shards = cut_like_training(labels, training, np.random.default_rng(seed))
    counts = shards.label_counts(labels, classes)
    assert len(np.unique(shards.indices)) == len(shards.indices)
    for label in range(classes):
        total = training[:, label].sum()
        if total == 0:
            assert counts[:, label].sum() == 0
        else:
            assert counts[:, label].sum() == 20
            assert (np.abs(counts[:, label] - 20 * training[:, label] / total) < 1).all()


def test_more_clients_than_images_are_refused():
    with pytest.raises(UserError, match="at most 3 clients, one for each test sample, found 4"):
        cut_like_training(np.array([0, 0, 0]), np.ones((4, 1), dtype=np.int64), np.random.default_rng(0))


@st.composite
def even_cuts(draw):
    """Classes, clients and s with clients · s divisible by classes."""
    classes = draw(st.integers(1, 12))
    s = draw(st.integers(1, classes))
    clients = draw(st.integers(1, 8)) * classes // int(np.gcd(s, classes))
    return classes, max(clients, 1), s


@settings(max_examples=30)
@given(even_cuts(), st.integers(0, 99))
def test_every_client_gets_exactly_s_classes_and_every_class_equally_many_clients(cut, seed):
    classes, clients, s = cut
    if clients * s % classes:
        clients *= classes
    assigned = class_assignment(clients, classes, s, np.random.default_rng(seed))
    assert set(np.unique(assigned)) <= {0, 1}
    assert (assigned.sum(axis=1) == s).all()
    assert (assigned.sum(axis=0) == clients * s // classes).all()


@pytest.mark.parametrize("s", [1, 2, 3, 4])
def test_cifar10_over_100_clients_uses_every_image_in_equal_shards(s):
    labels = np.repeat(np.arange(10), 5000)
    shards = SortAndPartition(s=s).split(labels, 10, 100, np.random.default_rng(0))
    counts = shards.label_counts(labels, 10)
    assert (shards.sizes == 500).all() or s == 3
    assert ((counts > 0).sum(axis=1) == s).all()
    assert set(np.unique(counts)) == {0, 5000 * 10 // (100 * s)}
    assert len(np.unique(shards.indices)) == len(shards.indices)


def test_unequal_classes_give_blocks_of_the_smallest_one():
    labels = np.repeat(np.arange(2), [40, 61])
    shards = SortAndPartition(s=1).split(labels, 2, 4, np.random.default_rng(0))
    assert shards.sizes.tolist() == [20, 20, 20, 20]
    assert SortAndPartition(s=1).sizes(np.array([40, 61]), 4, np.random.default_rng(0)).tolist() == [20] * 4


def test_which_classes_meet_is_left_to_chance():
    pairs = {tuple(np.flatnonzero(row)) for row in class_assignment(1000, 10, 2, np.random.default_rng(0))}
    assert len(pairs) == 45


def test_blocks_that_do_not_come_out_even_are_refused_with_the_numbers():
    with pytest.raises(UserError, match=r"multiple of the 10 classes, found 101 · 2 = 202"):
        SortAndPartition(s=2).check(np.full(10, 1200), 101)
    with pytest.raises(UserError, match="at most the number of classes, 10, found 11"):
        SortAndPartition(s=11).check(np.full(10, 1200), 100)
    with pytest.raises(UserError, match="at least 20 samples of each class, found 15"):
        SortAndPartition(s=2).check(np.array([15, 400]), 20)
