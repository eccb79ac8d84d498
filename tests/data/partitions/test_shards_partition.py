import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.data.partitions import SortAndPartition
from edgefl.data.partitions.shards import class_assignment
from edgefl.errors import UserError


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
