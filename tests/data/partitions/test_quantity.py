import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.data.partitions import Quantity
from edgefl.errors import UserError


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


def test_too_few_images_are_refused():
    with pytest.raises(UserError, match=r"at least 5 samples .* \(min_size\), found 14 training samples for 3"):
        Quantity(min_size=5).check(np.array([7, 7]), 3)
    with pytest.raises(UserError, match="expected at most 2 clients"):
        Quantity().check(np.array([1, 1]), 3)
