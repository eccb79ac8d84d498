import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.data.partitions import Iid
from edgefl.errors import UserError


@given(images=st.integers(1, 300), clients=st.integers(1, 300), seed=st.integers(0, 9))
def test_shards_are_equal_and_disjoint_and_leave_less_than_one_image_for_each_client(images, clients, seed):
    if clients > images:
        clients = images
    shards = Iid().split(np.zeros(images, dtype=np.int64), 1, clients, np.random.default_rng(seed))
    assert shards.sizes.tolist() == [images // clients] * clients
    assert len(np.unique(shards.indices)) == len(shards.indices) > images - clients


def test_more_clients_than_images_are_refused_with_both_numbers():
    with pytest.raises(UserError, match=r"at most 5 clients.*found 6"):
        Iid().check(np.array([2, 3]), 6)


def test_every_image_is_as_likely_as_any_other_to_belong_to_a_client():
    rng = np.random.default_rng(1)
    owned = np.zeros(12)
    for _ in range(3000):
        owned[Iid().split(np.zeros(12, dtype=np.int64), 1, 4, rng).shard(2)] += 1
    # A quarter of 3000, and five standard deviations of a binomial count around it.
    assert np.abs(owned - 750).max() < 5 * np.sqrt(3000 * 0.25 * 0.75)
