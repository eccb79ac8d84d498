import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from edgefl.data.sharding import Shards, deal


@given(arrays(np.int64, st.tuples(st.integers(1, 9), st.integers(1, 5)), elements=st.integers(0, 6)), st.integers(0, 9))
def test_dealing_gives_each_client_exactly_what_was_asked_for_and_no_image_twice(counts, seed):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(counts.shape[1]), counts.sum(axis=0) + 2))
    shards = deal(labels, counts, rng)
    assert len(np.unique(shards.indices)) == len(shards.indices)
    for client, wanted in enumerate(counts):
        shard = shards.shard(client)
        assert np.bincount(labels[shard], minlength=counts.shape[1]).tolist() == wanted.tolist()
        assert (np.diff(shard) > 0).all()
    assert shards.label_counts(labels, counts.shape[1]).tolist() == counts.tolist()
    assert shards.sizes.tolist() == counts.sum(axis=1).tolist()


def test_asking_for_more_images_than_a_class_has_is_a_fault():
    with pytest.raises(ValueError, match="class 1 has 1 images, and 2 are requested"):
        deal(np.array([0, 1]), np.array([[1, 2]]), np.random.default_rng(0))


def test_a_client_may_own_nothing():
    shards = Shards.of(np.array([2, 2]), np.array([4, 1]), clients=4)
    assert [shards.shard(client).tolist() for client in range(4)] == [[], [], [1, 4], []]
