"""Fewer training images than the set has: a fixed choice in its own proportions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.data.choice import chosen_images, class_counts
from edgefl.data.federated import load_federated, shard_sizes
from edgefl.data.sets.digits import Digits
from edgefl.errors import UserError
from edgefl.validation import validated


@given(st.lists(st.integers(1, 500), min_size=1, max_size=12), st.data())
def test_counts_sum_to_what_was_asked_and_stay_within_one_of_proportion(available, data):
    images = data.draw(st.integers(1, sum(available)))
    counts = class_counts(available, images)
    assert counts.sum() == images
    assert (np.abs(counts - np.array(available) / sum(available) * images) < 1).all()
    assert (counts <= available).all()


def test_positions_are_distinct_and_of_the_right_classes():
    labels = np.repeat([0, 1, 2], [60, 30, 10])
    chosen = chosen_images(labels, 20)
    assert len(set(chosen.tolist())) == 20
    assert np.bincount(labels[chosen]).tolist() == [12, 6, 2]


def test_a_run_without_pixels_counts_what_a_run_with_pixels_has():
    spec = Digits(clients=10, images=1200)
    data = load_federated(spec, 0)
    assert len(data.train) == 1200
    assert data.sizes.tolist() == shard_sizes(spec, 0).tolist() == [120] * 10


def test_more_images_than_there_are_is_refused():
    with pytest.raises(UserError, match="at most 12000"):
        validated(Digits, {"images": 20_000})
