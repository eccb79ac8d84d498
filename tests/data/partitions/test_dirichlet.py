import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.data.partitions import Dirichlet
from edgefl.data.partitions.dirichlet import (
    balanced_random_client,
    balanced_sequential,
    unbalanced_class_wise,
    unbalanced_client_wise,
)
from edgefl.errors import UserError

SIZES = st.lists(st.integers(0, 60), min_size=1, max_size=8).filter(lambda sizes: sum(sizes) > 0)
ALPHAS = st.sampled_from([1e-3, 0.1, 0.3, 1.0, 100.0])


@settings(max_examples=40)
@given(SIZES, st.integers(1, 20), ALPHAS, st.sampled_from(["sequential", "random_client"]), st.integers(0, 9))
def test_balanced_shards_are_equal_disjoint_and_leave_less_than_one_image_for_each(sizes, clients, alpha, order, seed):
    clients = min(clients, sum(sizes))
    labels = np.repeat(np.arange(len(sizes)), sizes)
    partition = Dirichlet(alpha=alpha, order=order)
    shards = partition.split(labels, len(sizes), clients, np.random.default_rng(seed))
    assert shards.sizes.tolist() == [sum(sizes) // clients] * clients
    assert len(np.unique(shards.indices)) == len(shards.indices)
    assert partition.sizes(np.array(sizes), clients, np.random.default_rng(seed)).tolist() == shards.sizes.tolist()


def literal_sequential(class_sizes, clients, alpha, rng):
    """FedMLB's procedure as it is told: one weighted draw of images after another, by an independent sampler."""
    labels = np.repeat(np.arange(len(class_sizes)), class_sizes)
    size = len(labels) // clients
    shares = np.maximum(rng.dirichlet([alpha] * len(class_sizes), size=clients), 1e-12)
    left = np.ones(len(labels), dtype=bool)
    counts = np.zeros((clients, len(class_sizes)))
    for client in range(clients):
        for _ in range(size):
            weights = shares[client][labels] * left
            image = rng.choice(len(labels), p=weights / weights.sum())
            left[image] = False
            counts[client, labels[image]] += 1
    return counts


def test_the_race_of_classes_is_the_weighted_draw_of_images_one_by_one():
    rng = np.random.default_rng(0)
    sizes, clients, repeats = np.array([6, 4, 8]), 3, 500
    ours = np.array([balanced_sequential(sizes, clients, 0.5, rng) for _ in range(repeats)])
    literal = np.array([literal_sequential(sizes, clients, 0.5, rng) for _ in range(repeats)])
    # First and second moments of the counts; five standard errors of the difference of two means.
    for power in (1, 2):
        error = np.sqrt(((ours**power).var(axis=0) + (literal**power).var(axis=0)) / repeats)
        assert (np.abs((ours**power).mean(axis=0) - (literal**power).mean(axis=0)) < 5 * error).all()


@pytest.mark.parametrize("draw", [balanced_sequential, balanced_random_client])
def test_first_clients_follow_their_dirichlet_shares(draw):
    # With images without end, a share's variance over clients is (1/C)(1 − 1/C)/(Cα + 1), plus the multinomial's.
    classes, alpha, size = 10, 0.3, 50
    counts = draw(np.full(classes, 4_000), 800, alpha, np.random.default_rng(3))[:400] / size
    dirichlet = 0.1 * 0.9 / (classes * alpha + 1)
    expected = dirichlet + (0.1 - 0.1**2 - dirichlet) / size
    assert counts.var(axis=0).mean() == pytest.approx(expected, rel=0.1)


def test_a_small_alpha_gives_few_classes_and_a_large_one_nearly_all_alike():
    skewed = balanced_sequential(np.full(10, 1200), 100, 0.05, np.random.default_rng(0))[:50]
    even = balanced_sequential(np.full(10, 1200), 100, 1e4, np.random.default_rng(0))
    assert np.median(skewed.max(axis=1)) > 90
    # A hypergeometric count of mean 12 and standard deviation 3.3.
    assert even.max() < 12 + 6 * 3.3


@settings(max_examples=30)
@given(st.lists(st.integers(1, 200), min_size=1, max_size=8), st.integers(1, 12), ALPHAS, st.integers(0, 9))
def test_unbalanced_cuts_give_every_image_to_somebody(sizes, clients, alpha, seed):
    sizes = np.array(sizes)
    rng = np.random.default_rng(seed)
    for draw in (unbalanced_class_wise, unbalanced_client_wise):
        counts = draw(sizes, clients, alpha, rng)
        if counts is not None:
            assert (counts >= 0).all()
            assert counts.sum(axis=0).tolist() == sizes.tolist()


def test_a_client_that_holds_the_mean_gets_nothing_of_the_next_class():
    for seed in range(50):
        counts = unbalanced_class_wise(np.array([100, 100, 100]), 5, 0.1, np.random.default_rng(seed))
        if counts is not None:
            held = np.cumsum(counts, axis=1)
            assert (counts[:, 1:][held[:, :-1] >= 60] == 0).all()


def test_client_wise_leftovers_go_to_the_clients_that_hold_least():
    counts = unbalanced_client_wise(np.array([7]), 5, 1e6, np.random.default_rng(0))
    assert sorted(counts[:, 0].tolist()) == [1, 1, 1, 2, 2]


@pytest.mark.parametrize("form", ["class_wise", "client_wise"])
def test_unbalanced_shards_have_the_least_size_and_their_sizes_are_known_without_labels(form):
    labels = np.repeat(np.arange(10), 500)
    partition = Dirichlet(alpha=0.5, balanced=False, form=form, min_size=10)
    shards = partition.split(labels, 10, 16, np.random.default_rng(1))
    assert shards.sizes.min() >= 10
    assert len(set(shards.sizes.tolist())) > 1
    assert partition.sizes(np.full(10, 500), 16, np.random.default_rng(1)).tolist() == shards.sizes.tolist()


def test_an_unreachable_least_size_ends_with_the_best_that_was_found():
    with pytest.raises(UserError, match=r"alpha 0.01 found no split of 300 samples over 30 clients .* larger alpha"):
        Dirichlet(alpha=0.01, balanced=False).counts(np.full(3, 100), 30, np.random.default_rng(0))
    with pytest.raises(UserError, match=r"at least 10 samples for each client .* found 90 training samples for 10"):
        Dirichlet(alpha=1, balanced=False).check(np.full(3, 30), 10)
