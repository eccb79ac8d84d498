"""Methods compared by seed: the intervals' coverage, the level of winners, and the tests, against scipy and counts."""

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from edgefl.record.metric import ACCURACY
from edgefl.record.summary import MetricResult, SeedResult
from edgefl.report import RunResult
from edgefl.report.paired import compare_metric, compared
from edgefl.report.quantities import estimate
from edgefl.tasks.language_model import PERPLEXITY
from edgefl.tasks.regression import RMSE

RUNS = 4000


def by_seed(values):
    return dict(enumerate(values))


def simulated(methods, seeds, random, means=None):
    """Accuracies with a part that a seed gives all methods, as partitions and cohorts do, and a part of each method."""
    shared, own = random.normal(0, 0.03, seeds), random.normal(0, 0.01, (methods, seeds))
    centre = np.full(methods, 0.9) if means is None else np.asarray(means)
    return {f"m{number}": by_seed((centre[number] + shared + own[number]).tolist()) for number in range(methods)}


@pytest.mark.parametrize("seeds", [3, *(pytest.param(seeds, marks=pytest.mark.full) for seeds in (5, 10))])
def test_95_percent_intervals_contain_the_true_difference_in_93_to_97_percent_of_runs(seeds):
    random = np.random.default_rng(seeds)
    covered = 0
    for _ in range(RUNS):
        found = compared(simulated(2, seeds, random, [0.90, 0.88]), highest=True)
        sign = 1 if found.best == "m0" else -1
        interval = found.differences[0].interval
        covered += interval.low <= sign * 0.02 <= interval.high
    assert 0.93 <= covered / RUNS <= 0.97


@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize(("images", "spread"), [(100, 0.001), (100, 0.01), (600, 0.002)])
def test_with_a_coarse_test_set_intervals_contain_the_true_difference_in_93_percent_of_runs(seeds, images, spread):
    """Accuracies are counts of images, so that differences are often equal; without the test set's part, 44 % hold."""
    random = np.random.default_rng(seeds)
    means = np.array([0.904, 0.889])
    noise = {f"m{number}": math.sqrt(mean * (1 - mean) / images) for number, mean in enumerate(means)}
    true, covered = 0.015, 0
    for _ in range(RUNS // 4):
        shown = np.round((means[:, None] + random.normal(0, spread, (2, seeds))) * images) / images
        figures = {f"m{number}": by_seed(values) for number, values in enumerate(shown.tolist())}
        found = compared(figures, highest=True, unseen=noise)
        sign = 1 if found.best == "m0" else -1
        interval = found.differences[0].interval
        covered += interval.low <= sign * true <= interval.high
    assert covered / (RUNS // 4) >= 0.93


class Trained(RunResult):
    """A run whose evaluations ``[seeds, evaluations]`` of each method are given."""

    def __init__(self, metric, labels, found):
        def entry(seed, values):
            named = metric._replace(title=metric.word)._asdict()
            shown = {**named, "labels": labels, "final": values[-1], "best": metric.best(*values)}
            of = {"seed": seed, "rounds": len(values), "rounds_without_update": 0}
            return SeedResult.model_construct(metric=MetricResult(**shown), **of)

        self.values = found
        self.results = {label: tuple(map(entry, itertools.count(), each.tolist())) for label, each in found.items()}
        self.moments = self.results
        self.scenario = {"methods": [{"as": "local", "method": "local"}, {"as": "central", "method": "central"}]}

    def rounds_of(self, label, seed):
        return pa.table({"metric": self.values[label][seed]})


def evaluations(metric, labels, level, random):
    """The last six evaluations with three seeds of a model that is right, or off, by chance on few of the labels."""
    shape = (3, 6)
    if metric is ACCURACY:  # a tenth of the labels is right by chance, the others always or never
        chance = labels // 10
        return (round((level - 0.05) * labels) + random.binomial(chance, 0.5, shape)) / labels
    if metric is RMSE:
        return level * np.sqrt(random.chisquare(labels, shape) / labels)
    return level * np.exp(random.normal(0, 1 / np.sqrt(labels), shape))


@pytest.mark.full
@pytest.mark.parametrize("beside", [(), ("local",), ("local", "central")])
@pytest.mark.parametrize(("metric", "levels"), [(ACCURACY, (0.9, 0.85)), (PERPLEXITY, (5.0, 5.5)), (RMSE, (1.0, 1.1))])
def test_intervals_hold_and_are_the_same_whatever_baselines_stand_beside_the_methods(metric, levels, beside):
    random, labels, covered = np.random.default_rng(0), 40, 0
    others = np.random.default_rng(1)
    for _ in range(RUNS // 4):
        methods = {name: evaluations(metric, labels, level, random) for name, level in zip("ab", levels, strict=True)}
        more = {name: np.mean([evaluations(metric, labels, levels[1], others) for _ in range(7)], 0) for name in beside}
        alone, found = (compare_metric(Trained(metric, labels, each)) for each in (methods, {**methods, **more}))
        assert found == alone
        true = levels[0] - levels[1] if found.best == "a" else levels[1] - levels[0]
        covered += found.differences[0].interval.low <= true <= found.differences[0].interval.high
    assert covered / (RUNS // 4) >= 0.93


def test_equal_differences_are_not_certain_and_more_seeds_decide():
    figures = {"a": by_seed([0.90, 0.91]), "b": by_seed([0.885, 0.895])}
    two = compared(figures, highest=True, unseen=dict.fromkeys("ab", 0.01))
    assert two.leaders == ["a", "b"]
    assert two.differences[0].interval.half_width == pytest.approx(1.96 * 0.01)
    more = two.differences[0].more_seeds + 2
    enough = {"a": by_seed([0.90] * more), "b": by_seed([0.885] * more)}
    assert compared(enough, highest=True, unseen=dict.fromkeys("ab", 0.01)).leaders == ["a"]


@pytest.mark.full
@pytest.mark.parametrize(("methods", "seeds"), [(2, 3), (5, 3), (5, 10)])
def test_of_equal_methods_one_is_named_the_only_winner_in_at_most_5_percent_of_runs(methods, seeds):
    random = np.random.default_rng(methods * seeds)
    wins = sum(len(compared(simulated(methods, seeds, random), highest=True).leaders) == 1 for _ in range(RUNS))
    assert wins / RUNS <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / RUNS)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=3, max_size=9))
def test_two_methods_are_not_decided_exactly_if_the_paired_t_test_does_not_reject(pairs):
    one, other = (np.array(values) for values in zip(*pairs, strict=True))
    spread = np.std(one - other, ddof=1)
    if spread < 1e-6:
        return
    found = compared({"a": by_seed(one.tolist()), "b": by_seed(other.tolist())}, highest=True)
    p = stats.ttest_rel(one, other).pvalue
    assert found.differences[0].p == pytest.approx(p, abs=1e-6)
    if abs(p - 0.05) > 1e-6:
        assert found.differences[0].decided != (p > 0.05)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(3, 6), st.integers(3, 7))
def test_the_separated_methods_are_those_that_holm_rejects(seed, methods, seeds):
    random = np.random.default_rng(seed)
    found = compared(simulated(methods, seeds, random, random.uniform(0.86, 0.94, methods)), highest=True)
    rejected = set()
    for rank, each in enumerate(sorted(found.differences, key=lambda each: each.p)):
        if each.p > 0.05 / (methods - 1 - rank):
            break
        rejected.add(each.label)
    assert {each.label for each in found.differences if each.decided} == rejected
    assert all((each.interval.low <= 0 <= each.interval.high) != each.decided for each in found.differences)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(-9, 9).map(float), min_size=2, max_size=8))
def test_the_sign_flip_test_counts_all_flips(values):
    found = compared(
        {"a": by_seed([100.0 + each for each in values]), "b": by_seed([100.0] * len(values))}, highest=True
    )
    sums = [abs(sum(map(float.__mul__, signs, values))) for signs in itertools.product((1.0, -1.0), repeat=len(values))]
    expected = sum(each >= abs(sum(values)) - 1e-9 for each in sums) / len(sums)
    assert found.differences[0].sign_flip_p == pytest.approx(expected)


def test_what_a_seed_changes_for_all_methods_does_not_hide_their_difference():
    found = compared({"a": by_seed([0.50, 0.70, 0.90]), "b": by_seed([0.52, 0.73, 0.92])}, highest=True)
    assert found.leaders == ["b"]
    assert estimate(found.differences[0].interval, "fraction") == "2.3 ± 1.4 %"  # 2, 3, 2 points: t·0.577/√3 = 1.434


def test_only_common_seeds_count_and_fewer_than_two_decide_nothing():
    found = compared(
        {"a": {0: 0.9, 1: 0.9, 2: 0.9}, "b": {1: 0.8, 2: 0.8, 7: 0.1}, "c": {2: 0.1, 9: 0.1}}, highest=True
    )
    assert [each.values for each in found.differences] == [(pytest.approx(0.1),) * 2, (pytest.approx(0.8),)]
    assert found.leaders == ["a", "b", "c"]
    assert found.differences[1].interval.half_width == math.inf


def test_with_one_or_two_seeds_nothing_is_decided():
    one = compared({"a": {0: 0.8}, "b": {0: 0.9}, "c": {0: 0.9}}, highest=True)
    two = compared({"a": by_seed([0.8, 0.81]), "b": by_seed([0.9, 0.91])}, highest=True)
    assert (one.leaders, two.leaders) == (["b", "c", "a"], ["b", "a"])
    assert (one.differences[0].p, one.differences[0].sign_flip_p, two.differences[0].p) == (None, None, None)


def test_figures_that_differ_by_rounding_only_are_equal():
    found = compared({"a": by_seed([0.1 + 0.2] * 3), "b": by_seed([0.3] * 3)}, highest=False)
    assert found.leaders == [found.best, found.differences[0].label]
    assert found.differences[0].values == (0.0, 0.0, 0.0)
