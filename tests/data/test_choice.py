"""Which samples are trained, held out and dealt to clients."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from edgefl.data.choice import chosen_images, class_counts, held_out
from edgefl.data.federated import load_federated, shard_sizes
from edgefl.data.sets.digits import Digits
from edgefl.data.sets.synthetic import Synthetic
from edgefl.data.sharding import Shards, deal
from edgefl.errors import UserError
from edgefl.validation import validated


@settings(max_examples=30)
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
    spec = Synthetic(shape=(1, 4, 4), train=3000, test=60, clients=10, images=1200)
    data = load_federated(spec, 0)
    assert len(data.train) == 1200
    assert data.sizes.tolist() == shard_sizes(spec, 0).tolist() == [120] * 10


def test_more_images_than_there_are_is_refused():
    with pytest.raises(UserError, match="at most 12000"):
        validated(Digits, {"images": 20_000})


@settings(max_examples=30)
@given(
    originals=st.lists(st.integers(1, 30), min_size=1, max_size=5),
    copies=st.integers(1, 4),
    share=st.floats(0.01, 0.99),
)
def test_copies_of_an_original_stay_together_and_each_class_gives_its_share(originals, copies, share):
    origin = np.repeat(np.arange(sum(originals)), copies) * 7
    labels = np.repeat(np.repeat(np.arange(len(originals)), originals), copies)
    kept, held = held_out(labels, origin, share)
    assert sorted([*kept, *held]) == list(range(len(labels)))
    assert not set(origin[kept]) & set(origin[held])
    for label, count in enumerate(originals):
        out = len(np.unique(origin[held][labels[held] == label]))
        assert 0 <= out < count or count == 1
        if count >= 2 and 1 <= round(share * count) < count:
            assert out == round(share * count)


def test_without_copies_a_tenth_of_each_class_is_held_out_and_always_the_same():
    labels = np.repeat(np.arange(10), 100)
    kept, held = held_out(labels, None, 0.1)
    assert np.bincount(labels[held]).tolist() == [10] * 10
    assert held.tolist() == held_out(labels, None, 0.1)[1].tolist()
    assert len(kept) == 900


@settings(max_examples=30)
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


def test_a_client_may_own_nothing():
    shards = Shards.of(np.array([2, 2]), np.array([4, 1]), clients=4)
    assert [shards.shard(client).tolist() for client in range(4)] == [[], [], [1, 4], []]
