import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.data.partitions import LabelLevel
from edgefl.data.partitions.label_level import missing_classes
from edgefl.errors import UserError


def cut(class_sizes, clients, level, form="auto", seed=0):
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(class_sizes)), class_sizes))
    partition = LabelLevel(level=level, form=form)
    shards = partition.split(labels, len(class_sizes), clients, np.random.default_rng(seed))
    assert len(np.unique(shards.indices)) == len(shards.indices)
    sizes = partition.sizes(np.array(class_sizes), clients, np.random.default_rng(seed))
    assert shards.sizes.tolist() == sizes.tolist()
    return shards.label_counts(labels, len(class_sizes))


@pytest.mark.parametrize("level", [1, 7, 9])
def test_cifar10_over_100_clients_uses_every_image_at_every_level(level):
    counts = cut([5000] * 10, 100, level)
    assert (counts.sum(axis=1) == 500).all()
    assert (counts.sum(axis=0) == 5000).all()
    # ε·10 % of 500 images are a whole number.
    assert (counts[np.arange(100), np.arange(100) % 10] == 50 * level).all()


def test_level_7_of_120_digits_is_84_of_one_class_and_4_of_each_other():
    counts = cut([1200] * 10, 100, 7)
    assert set(map(tuple, np.sort(counts, axis=1).tolist())) == {(4,) * 9 + (84,)}


@settings(max_examples=30)
@given(
    class_sizes=st.lists(st.integers(20, 90), min_size=2, max_size=10),
    clients=st.integers(1, 25),
    level=st.integers(1, 9),
)
def test_the_dominant_class_has_its_share_and_the_others_differ_by_one_image_at_most(class_sizes, clients, level):
    counts = cut(class_sizes, clients, level)
    size = counts.sum(axis=1)
    assert (size == size[0]).all()
    assert (counts.sum(axis=0) <= class_sizes).all()
    own = np.arange(clients) % len(class_sizes)
    assert np.abs(counts[np.arange(clients), own] - size * level / 10).max() <= 0.5
    others = np.array([np.delete(row, place) for row, place in zip(counts, own, strict=True)])
    assert (others.max(axis=1) - others.min(axis=1) <= 1).all()


@pytest.mark.parametrize("level", [1, 7, 9])
def test_cifar100_over_100_clients_lacks_10_classes_a_level_and_uses_every_image(level):
    counts = cut([500] * 100, 100, level)
    held = counts > 0
    assert (held.sum(axis=1) == 100 - 10 * level).all()
    assert (held.sum(axis=0) == 100 - 10 * level).all()
    assert (counts.sum(axis=1) == 500).all()
    assert (counts.sum(axis=0) == 500).all()


@settings(max_examples=30)
@given(classes=st.integers(11, 60), clients=st.integers(1, 50), level=st.integers(1, 9), each=st.integers(70, 90))
def test_missing_classes_are_as_many_as_the_level_says_and_the_rest_is_even(classes, clients, level, each):
    counts = cut([each] * classes, clients, level)
    held = classes - missing_classes(classes, level)
    assert ((counts > 0).sum(axis=1) == held).all()
    own = np.sort(counts, axis=1)[:, -held:]
    assert (own[:, -1] - own[:, 0] <= 1).all()
    takers = (counts > 0).sum(axis=0)
    assert takers.max() - takers.min() <= 1


def test_level_0_is_a_random_equal_split():
    labels = np.repeat(np.arange(10), 100)
    shards = LabelLevel(level=0).split(labels, 10, 10, np.random.default_rng(0))
    counts = shards.label_counts(labels, 10)
    assert (counts.sum(axis=1) == 100).all()
    # By chance, not by design: a stratified split would have 10 everywhere.
    assert (counts != 10).any()


def test_a_level_that_leaves_no_class_or_no_image_is_refused():
    with pytest.raises(UserError, match="none of 5 classes"):
        LabelLevel(level=9, form="missing").check(np.full(5, 100), 10)
    with pytest.raises(UserError, match="at least 30 samples for each client"):
        LabelLevel(level=7).check(np.full(100, 10), 100)
    with pytest.raises(UserError, match="at least 2 classes, found 1"):
        LabelLevel(level=7).check(np.array([50]), 5)
