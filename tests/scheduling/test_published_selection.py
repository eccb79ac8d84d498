"""TiFL, REFL, Power-of-Choice and EAFL against a second transcription of their pseudo-code, over random worlds.

The transcriptions follow the papers step by step on plain Python numbers. They share only the random draws with the
selectors: what is drawn in which order is part of each selector's contract.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from edgefl.errors import UserError
from edgefl.randomness import generator
from edgefl.scheduling.selection.base import Charge, Facts, Foreseen, SelectionFeedback, selection

WORLDS = range(8)


class World:
    """A random world: times, data, batteries, availability and losses of its clients, new in every round."""

    def __init__(self, number):
        self.draws = np.random.default_rng(number)
        self.clients = int(self.draws.integers(6, 40))
        self.cohort = int(self.draws.integers(1, 7))
        self.sizes = self.draws.integers(1, 100, self.clients)
        self.seconds = self.draws.exponential(10.0, (3, self.clients))
        self.now = 0.0
        self.asked = []

    def round(self):
        """Draw the facts of the next round; returns the available clients."""
        self.now += float(self.draws.exponential(50.0))
        self.losses = self.draws.random(self.clients).round(1)  # rounded, so that some are equal
        self.share = self.draws.random(self.clients).round(1)
        self.level = self.draws.random(self.clients)
        self.used = self.draws.random(self.clients) / 5
        self.windows = []
        return np.flatnonzero(self.draws.random(self.clients) < 0.8)

    def facts(self):
        def losses(clients, images):
            self.asked.append((clients.tolist(), images))
            return self.losses[clients]

        def share(clients, begin, end):
            self.windows.append((begin, end))
            return self.share[clients]

        return Facts(
            foreseen=lambda clients: Foreseen(*self.seconds[:, clients]),
            data_sizes=self.sizes,
            now=self.now,
            availability=share,
            charge=lambda clients: Charge(self.level[clients], self.used[clients]),
            local_losses=losses,
        )

    def feedback(self, picked):
        n = len(picked)
        return SelectionFeedback(
            picked, self.draws.random(n) * 3, self.sizes[picked], self.draws.exponential(10.0, n) + 0.1
        )


# TiFL


def tiers_of(world, number):
    """Sec. 4.2: clients in order of their latency, in groups of equal size (the first ones take what is left)."""
    order = sorted(range(world.clients), key=lambda client: (sum(world.seconds[:, client]), client))
    size, left = divmod(world.clients, number)
    tiers, start = [], 0
    for tier in range(number):
        end = start + size + (tier < left)
        tiers.append(sorted(order[start:end]))
        start = end
    return tiers


def drawn_tier(draws, chances):
    return int(draws.choice(len(chances), p=np.array(chances) / sum(chances)))


def from_tier(draws, clients, cohort):
    places = sorted(draws.choice(len(clients), size=min(cohort, len(clients)), replace=False, shuffle=False).tolist())
    return [clients[place] for place in places]


def adaptive_tifl(world, seed, rounds, tiers, interval, credits):
    """Alg. 2, with the loss in place of the accuracy."""
    groups = tiers_of(world, tiers)
    probabilities = [1 / tiers] * tiers
    credits = None if credits is None else list(credits)
    losses, current = [math.nan] * tiers, 0
    for r in range(rounds):
        available = yield
        open_tiers = [[client for client in group if client in set(available.tolist())] for group in groups]
        if r % interval == 0:
            new = list(losses)
            for tier, clients in enumerate(open_tiers):
                if clients:
                    total = sum(int(world.sizes[client]) for client in clients)
                    new[tier] = sum(world.losses[c] * int(world.sizes[c]) for c in clients) / total
            if r >= interval and new[current] >= losses[current]:
                accurate_first = sorted(range(tiers), key=lambda tier: (math.isnan(new[tier]), new[tier], tier))
                total = tiers * (tiers + 1) / 2
                for place, tier in enumerate(accurate_first):
                    probabilities[tier] = (place + 1) / total
            losses = new
        draws = generator(seed, "selection", r)
        usable = [bool(clients) for clients in open_tiers]
        with_credits = usable if credits is None else [u and c > 0 for u, c in zip(usable, credits, strict=True)]
        if any(with_credits):
            usable = with_credits
        current = drawn_tier(draws, [p if u else 0.0 for p, u in zip(probabilities, usable, strict=True)])
        if credits is not None:
            credits[current] -= 1
        yield from_tier(draws, open_tiers[current], world.cohort)


@pytest.mark.parametrize("number", WORLDS)
def test_adaptive_tifl_picks_the_cohorts_of_algorithm_2(number):
    world, options = World(number), np.random.default_rng(1000 + number)
    tiers, interval = int(options.integers(1, 6)), int(options.integers(1, 5))
    credits = [int(each) for each in options.integers(0, 8, tiers)] if number % 2 else None
    selector = selection({"kind": "tifl", "tiers": tiers, "interval": interval, "credits": credits}).start(number)
    by_hand = adaptive_tifl(world, number, 25, tiers, interval, credits)
    groups = tiers_of(world, tiers)
    for r in range(25):
        available = world.round()
        next(by_hand)
        picked = selector.pick(r, available, world.cohort, world.facts()).tolist()
        assert picked == by_hand.send(available)
        assert sum(bool(set(picked) & set(group)) for group in groups) == 1  # one tier
    assert len(world.asked) == math.ceil(25 / interval)


@pytest.mark.parametrize("number", WORLDS)
def test_static_tifl_draws_a_tier_by_its_probability_without_slow_clients(number):
    world = World(number)
    timeout = float(np.median(world.seconds.sum(axis=0)))
    kept = [c for c in range(world.clients) if world.seconds[:, c].sum() < timeout]
    if len(kept) < 2:
        pytest.skip("no two clients are fast enough")
    probabilities = [0.25, 0.75]
    options = {"kind": "tifl", "tiers": 2, "probabilities": probabilities, "timeout": timeout}
    selector = selection(options).start(number)
    order = sorted(kept, key=lambda client: (sum(world.seconds[:, client]), client))
    half = (len(kept) + 1) // 2
    groups = [sorted(order[:half]), sorted(order[half:])]
    for r in range(10):
        available = world.round()
        members = [[c for c in group if c in available] for group in groups]
        draws = generator(number, "selection", r)
        expected = []
        if any(members):
            chances = [p if m else 0.0 for p, m in zip(probabilities, members, strict=True)]
            expected = from_tier(draws, members[drawn_tier(draws, chances)], world.cohort)
        assert selector.pick(r, available, world.cohort, world.facts()).tolist() == expected
    assert not world.asked


def test_tifl_says_that_everyone_is_too_slow():
    with pytest.raises(UserError, match="no client is faster than the timeout; the fastest takes"):
        selection({"kind": "tifl", "timeout": 1e-9}).start(0).pick(0, np.arange(6), 2, World(0).facts())


@pytest.mark.parametrize(
    ("options", "message"),
    [({"probabilities": [0.5, 0.5]}, "one value for each of 5 tiers, found 2"),
     ({"tiers": 2, "probabilities": [0.5, 0.6]}, "expected a sum of 1, found 1.1"),
     ({"tiers": 2, "credits": [1]}, "one value for each of 2 tiers, found 1"),
     ({"tiers": 1, "probabilities": [1], "credits": [3]}, "constant probabilities use no credits")],
)  # fmt: skip
def test_tifl_refuses_options_that_do_not_fit(options, message):
    with pytest.raises(UserError, match=message):
        selection({"kind": "tifl", **options}).start(0)


# REFL


def refl(world, seed, rounds, alpha, accuracy, rest, first):
    """Alg. 1: forecast the next slot, sort ascending, shuffle ties, hold off after a participation."""
    expected, last, held = first, None, {}
    for r in range(rounds):
        available = (yield).tolist()
        if last is not None:
            expected = (1 - alpha) * (world.now - last) + alpha * expected
        last = world.now
        draws = generator(seed, "selection", r)
        luck = draws.random(len(available)).tolist()
        report = {
            c: world.share[c] if u < accuracy else 1 - world.share[c] for c, u in zip(available, luck, strict=True)
        }
        shuffled = dict(zip(available, draws.permutation(len(available)).tolist(), strict=True))
        order = sorted(available, key=lambda c: (held.get(c, -1) >= r, report[c], shuffled[c]))
        picked = order[: world.cohort]
        held |= dict.fromkeys(picked, r + rest)
        yield sorted(picked), (expected, 2 * expected)


@pytest.mark.parametrize("number", WORLDS)
def test_refl_picks_the_least_available_of_algorithm_1(number):
    world, options = World(number), np.random.default_rng(2000 + number)
    alpha, accuracy, rest = float(options.random()), float(options.random()), int(options.integers(0, 4))
    given = {"smoothing": alpha, "accuracy": accuracy, "rest": rest, "duration": 7.0}
    selector = selection({"kind": "refl", **given}).start(number)
    by_hand = refl(world, number, 20, alpha, accuracy, rest, 7.0)
    for r in range(20):
        available = world.round()
        next(by_hand)
        picked = selector.pick(r, available, world.cohort, world.facts()).tolist()
        expected, window = by_hand.send(available)
        assert picked == expected
        assert world.windows == [pytest.approx(window)]


def test_refl_with_perfect_forecasts_prefers_clients_that_will_leave():
    world = World(5)
    world.round()
    everyone = np.arange(world.clients)
    world.share = everyone / world.clients
    selector = selection({"kind": "refl", "accuracy": 1, "rest": 2}).start(0)
    for r, expected in enumerate(([0, 1], [2, 3], [4, 5], [0, 1])):
        assert selector.pick(r, everyone, 2, world.facts()).tolist() == expected


# Power-of-Choice


@pytest.mark.parametrize("number", WORLDS)
@pytest.mark.parametrize("images", [None, 8])
def test_power_of_choice_picks_the_candidates_with_the_highest_losses(number, images):
    world = World(number)
    factor = float(np.random.default_rng(3000 + number).uniform(1, 4))
    selector = selection({"kind": "power_of_choice", "candidates": factor, "images": images}).start(number)
    for r in range(10):
        available = world.round()
        d = min(len(available), math.ceil(round(factor * world.cohort, 9)))
        share = [world.sizes[c] / sum(world.sizes[available]) for c in available]
        drawn = generator(number, "selection", r).choice(available, size=d, replace=False, p=share).tolist()
        best = sorted(range(d), key=lambda place: (-world.losses[drawn[place]], place))[: world.cohort]
        picked = selector.pick(r, available, world.cohort, world.facts()).tolist()
        assert picked == sorted(drawn[place] for place in best)
        assert world.asked[-1] == (sorted(drawn), images)


@pytest.mark.parametrize("number", WORLDS)
def test_reported_losses_are_the_last_ones_and_infinite_before(number):
    world = World(number)
    selector = selection({"kind": "power_of_choice", "losses": "reported"}).start(number)
    known: dict[int, float] = {}
    for r in range(15):
        available = world.round()
        d = min(len(available), 2 * world.cohort)
        share = [world.sizes[c] / sum(world.sizes[available]) for c in available]
        drawn = generator(number, "selection", r).choice(available, size=d, replace=False, p=share).tolist()
        best = sorted(range(d), key=lambda place: (-known.get(drawn[place], math.inf), place))[: world.cohort]
        picked = selector.pick(r, available, world.cohort, world.facts())
        assert picked.tolist() == sorted(drawn[place] for place in best)
        feedback = world.feedback(picked)
        selector.observe(feedback)
        known |= dict(zip(picked.tolist(), feedback.loss.tolist(), strict=True))
    assert not world.asked


def test_as_many_candidates_as_the_cohort_are_drawn_by_their_data_alone():
    sizes = np.array([1, 2, 3, 4])
    facts = Facts(data_sizes=sizes, local_losses=lambda clients, images: np.arange(len(clients), dtype=float))
    selector, counts, rounds = selection({"kind": "power_of_choice", "candidates": 1}).start(0), np.zeros(4), 1000
    for r in range(rounds):
        counts[selector.pick(r, np.arange(4), 1, facts)] += 1
    expected = sizes / 10
    assert (np.abs(counts / rounds - expected) < 5 * np.sqrt(expected * (1 - expected) / rounds)).all()


def test_reported_losses_refuse_a_number_of_images():
    with pytest.raises(UserError, match="reported losses are not evaluated on images"):
        selection({"kind": "power_of_choice", "losses": "reported", "images": 3}).start(0)


# EAFL


def run_both(one, other, number, rounds=25):
    world = World(number)
    for r in range(rounds):
        available = world.round()
        first = one.pick(r, available, world.cohort, world.facts())
        second = other.pick(r, available, world.cohort, world.facts())
        assert first.tolist() == second.tolist()
        feedback = world.feedback(first)
        one.observe(feedback)
        other.observe(feedback)


@pytest.mark.parametrize("number", WORLDS)
def test_eafl_without_weight_of_the_battery_is_oort(number):
    run_both(selection({"kind": "eafl", "f": 1}).start(number), selection("oort").start(number), number)


def test_eafl_that_only_looks_at_batteries_prefers_full_ones():
    selector = selection({"kind": "eafl", "f": 0, "exploration": 0, "least_exploration": 0, "cutoff": 1}).start(0)
    world, everyone = World(1), np.arange(6)
    world.round()
    selector.pick(0, everyone, 6, world.facts())
    selector.observe(world.feedback(everyone))
    world.level, world.used = np.array([0.9, 1.0, 0.5, 0.8, 0.2, 0.7]), np.array([0.5, 0, 0, 0.05, 0, 0])
    assert selector.pick(1, everyone, 3, world.facts()).tolist() == [1, 3, 5]
