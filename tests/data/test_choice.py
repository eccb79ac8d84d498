"""Choices of samples, and their distribution."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from edgefl.data.choice import chosen_images, held_out, largest_remainders, split_off
from edgefl.data.distribution import data_distribution, of_targets
from edgefl.data.federated import load_federated, shard_sizes
from edgefl.data.sets.arrays import Arrays
from edgefl.data.sets.digits import Digits
from edgefl.data.sharding import Shards, deal
from edgefl.errors import UserError
from edgefl.tasks.language_model import LanguageModel
from edgefl.validation import validated


@settings(max_examples=30)
@given(st.lists(st.integers(1, 500), min_size=1, max_size=12), st.data())
def test_counts_sum_to_what_was_asked_and_stay_within_one_of_proportion(available, data):
    images = data.draw(st.integers(1, sum(available)))
    counts = largest_remainders(np.array(available, dtype=float), images)
    assert counts.sum() == images
    assert (np.abs(counts - np.array(available) / sum(available) * images) < 1).all()
    assert (counts <= available).all()


def test_positions_are_distinct_and_of_the_right_classes():
    labels = np.repeat([0, 1, 2], [60, 30, 10])
    chosen = chosen_images(labels, 20)
    assert len(set(chosen.tolist())) == 20
    assert np.bincount(labels[chosen]).tolist() == [12, 6, 2]


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


@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    classes=st.integers(1, 3),
    share=st.floats(0.05, 0.95),
    seed=st.integers(0, 9),
)
def test_every_owner_keeps_a_sample(sizes, classes, share, seed):
    rng = np.random.default_rng(seed)
    owner = rng.permutation(np.repeat([*range(len(sizes)), -1], [*sizes, 3]))
    labels = rng.integers(0, classes, len(owner))
    kept, held = held_out(labels, None, share, owner)
    assert sorted([*kept, *held]) == list(range(len(owner)))
    assert set(range(len(sizes))) <= set(owner[kept].tolist())
    plain = held_out(labels, None, share)
    assert len(held) <= len(plain[1])
    if set(range(len(sizes))) <= set(owner[plain[0]].tolist()):
        assert held.tolist() == plain[1].tolist()
    images = max(len(sizes), round(share * len(owner)))
    chosen, others = chosen_images(labels, images, owner), chosen_images(labels, images)
    assert len(set(chosen.tolist())) == images
    assert set(range(len(sizes))) <= set(owner[chosen].tolist())
    if set(range(len(sizes))) <= set(owner[others].tolist()):
        assert chosen.tolist() == others.tolist()


def owned(tmp_path, sizes, **options):
    """Samples of one class, of as many owners."""
    owner = np.repeat(np.arange(len(sizes)), sizes)
    inputs = np.arange(2.0 * len(owner), dtype=np.float32).reshape(-1, 2)
    x, y = {"x": inputs, "y": np.zeros(len(owner), np.int64)}, {"t": inputs[:9], "u": np.zeros(9, np.int64)}
    np.savez(tmp_path / "owned.npz", **x, **y, client=owner, v=np.zeros(9, np.int64))
    tests = {"test_inputs": "t", "test_target": "u", "test_client": "v"}
    options = {"clients": len(sizes), "partition": {"kind": "natural"}, "classes": 2, **tests, **options}
    return Arrays(train=str(tmp_path / "owned.npz"), **options)


def test_clients_of_one_sample_keep_it(tmp_path):
    sizes = (1, 1, 1, 14)
    spec = owned(tmp_path, sizes)
    assert shard_sizes(spec, 0, "validation").tolist() == [1, 1, 1, 12]
    assert shard_sizes(owned(tmp_path, sizes, images=8), 0).tolist() == [1, 1, 1, 5]
    with pytest.raises(UserError, match="at least 4, one sample for each client, found 3"):
        shard_sizes(owned(tmp_path, sizes, images=3), 0)


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


RNG = np.random.default_rng(0)
SHARDS = Shards(RNG.permutation(40)[:30], np.array([0, 10, 10, 13, 30]))  # a client without samples, ten unused


def each(targets):
    return [targets[SHARDS.shard(client)] for client in range(4)]


def test_classes_are_counted_for_each_client():
    targets = RNG.integers(0, 5, 40)
    found = of_targets(targets, 6, SHARDS)
    assert found.what == "classes"
    assert found.counts.tolist() == [[int((mine == label).sum()) for label in range(6)] for mine in each(targets)]
    assert found.held.tolist() == [len(set(mine.tolist())) for mine in each(targets)]
    assert (found.unused, found.sizes.tolist()) == (10, [10, 0, 3, 17])


def test_the_distance_is_half_the_sum_of_differences_of_shares():
    targets = RNG.integers(0, 5, 40)
    found = of_targets(targets, 5, SHARDS)
    mine = [targets[SHARDS.shard(client)].tolist() for client in range(4)]
    everybody = [label for part in mine for label in part]
    for client in (0, 2, 3):
        direct = sum(
            abs(mine[client].count(label) / len(mine[client]) - everybody.count(label) / 30) for label in range(5)
        )
        assert found.distances[client] == pytest.approx(direct / 2)
    assert np.isnan(found.distances[1])


def test_numbers_have_means_and_a_share_of_variance_between_clients():
    targets = (RNG.standard_normal((40, 2)) + np.arange(40)[:, None]).astype(np.float32)
    found = of_targets(targets, 2, SHARDS)
    assert (found.what, found.counts, found.distances) == ("numbers", None, None)
    mine = each(targets)
    for client in (0, 2, 3):
        assert found.means[client] == pytest.approx(mine[client].mean(), rel=1e-5)
    used = np.concatenate(mine).astype(float)
    within = sum(((part - part.mean(axis=0)) ** 2).sum() for part in mine if len(part))
    total = ((used - used.mean(axis=0)) ** 2).sum()
    assert found.between == pytest.approx(1 - within / total)
    assert found.summary()["target_mean"]["largest"] == pytest.approx(max(mine[k].mean() for k in (0, 2, 3)))


def test_rows_of_zeros_and_ones_are_labels_and_integers_of_sequences_tokens():
    labels = RNG.integers(0, 2, (40, 3)).astype(np.float32)
    found = of_targets(labels, 3, SHARDS)
    assert found.what == "labels"
    assert found.counts.tolist() == [mine.sum(axis=0).astype(int).tolist() for mine in each(labels)]
    tokens = RNG.integers(0, 9, (40, 5))
    found = of_targets(tokens, 9, SHARDS)
    assert found.what == "tokens"
    assert found.counts.tolist() == [np.bincount(mine.ravel(), minlength=9).tolist() for mine in each(tokens)]


def test_places_that_do_not_count_are_no_tokens_of_any_client(tmp_path):
    """The first client's would be a negative category, those of the others a category of the client before."""
    tokens = RNG.integers(0, 6, (40, 5))
    labels = np.where(RNG.random((40, 5)) < 0.4, -100, tokens)
    np.savez(tmp_path / "text.npz", x=tokens, y=labels, client=np.arange(40) % 4)
    spec = Arrays(train=str(tmp_path / "text.npz"), clients=4, partition={"kind": "natural"}, test_share=0.2)
    data = load_federated(spec.for_task(LanguageModel()), 0)
    train = data.train.labels.numpy()
    mine = [train[data.shards.shard(client)] for client in range(4)]
    assert data_distribution(data).counts.tolist() == [
        [int((part == token).sum()) for token in range(6)] for part in mine
    ]


@pytest.mark.full
@pytest.mark.parametrize("owners", [[0, 0, 1, 2, 3], [0, 1, 2, 3, 3], [0, 1, 1, 2]])
@pytest.mark.parametrize("share", [0.05, 0.2, 0.5, 0.9])
def test_a_sample_to_test_on_is_of_an_owner_with_several(owners, share):
    owner = np.array(owners)
    kept, out = split_off(np.zeros(len(owner), np.int64), owner, share)
    assert len(out) >= 1
    assert set(owner[kept]) == set(owners)


def test_where_each_owner_has_one_sample_none_is_tested_on():
    with pytest.raises(UserError, match="no sample can be tested on, as each client has only one"):
        split_off(np.zeros(4, np.int64), np.arange(4), 0.2)
