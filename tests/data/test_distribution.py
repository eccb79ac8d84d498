"""Who holds what: counts, distances and means, against direct loops."""

from __future__ import annotations

import numpy as np
import pytest

from edgefl.data.distribution import data_distribution, of_targets
from edgefl.data.federated import load_federated
from edgefl.data.sets.arrays import Arrays
from edgefl.data.sharding import Shards
from edgefl.tasks.language_model import LanguageModel

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
