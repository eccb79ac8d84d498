import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from edgefl.data.partitions.like_training import cut_like_training
from edgefl.errors import UserError


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
