"""The seeds that a run's comparisons need: the table of pairs, and the sentence of the verdict."""

import pytest
from scipy import stats
from typer.testing import CliRunner

from edgefl.cli.entry import app
from edgefl.errors import UserError
from edgefl.record.metric import ACCURACY, Metric
from edgefl.report.seed_plan import read_difference, seed_plan
from edgefl.report.statistics import seeds_needed

from .conftest import seed_result


def seeds(accuracies, numbers=None):
    return [
        seed_result(seed, accuracy__final=accuracy)
        for seed, accuracy in zip(numbers or range(len(accuracies)), accuracies, strict=True)
    ]


THREE = {"a": [0.90, 0.92, 0.91, 0.93], "b": [0.88, 0.91, 0.92, 0.91], "c": [0.70, 0.75, 0.80, 0.70]}


@pytest.fixture
def three(make_run):
    return make_run({label: seeds(values) for label, values in THREE.items()})


def power_by_hand(difference, deviation, count, confidence):
    """The same from SciPy's own distribution."""
    limit = stats.t.ppf(0.5 + confidence / 2, count - 1)
    far = stats.nct(count - 1, difference * count**0.5 / deviation)
    return far.sf(limit) + far.cdf(-limit)


def test_each_pair_gets_the_seeds_for_its_own_spread(three):
    plan = seed_plan(three, 0.01)
    assert [(pair.method, pair.other) for pair in plan.pairs] == [("a", "b"), ("a", "c"), ("b", "c")]
    pair = plan.pairs[0]
    differences = [one - other for one, other in zip(THREE["a"], THREE["b"], strict=True)]
    deviation = stats.tstd(differences)
    assert (pair.mean, pair.deviation) == pytest.approx((sum(differences) / 4, deviation))
    assert power_by_hand(0.01, deviation, pair.needed, 0.95) >= 0.8
    assert power_by_hand(0.01, deviation, pair.needed - 1, 0.95) < 0.8
    # Among three methods, a method is compared with two others: 97.5 %.
    assert power_by_hand(0.01, deviation, pair.among_all, 0.975) >= 0.8
    assert power_by_hand(0.01, deviation, pair.among_all - 1, 0.975) < 0.8
    wide = deviation * (3 / stats.chi2.ppf(0.2, 3)) ** 0.5
    assert pair.cautious == seeds_needed(0.01, wide)
    assert plan.more == max(each.needed for each in plan.pairs) - 4


def test_pairs_without_two_common_seeds_are_named(make_run):
    plan = seed_plan(make_run({"a": seeds([0.9, 0.8]), "b": seeds([0.7, 0.6]), "c": seeds([0.9, 0.9], [7, 8])}), 0.01)
    assert plan.unknown == (("c", "a"), ("c", "b"))
    assert [(pair.method, pair.other) for pair in plan.pairs] == [("a", "b")]


@pytest.mark.parametrize(
    ("text", "metric", "expected"),
    [
        ("1pt", ACCURACY, 0.01),
        ("2.5 points", ACCURACY, 0.025),
        ("1 point", ACCURACY, 0.01),
        ("0.5%", ACCURACY, 0.005),
        ("0.2", Metric("rmse", "lower", share=False), 0.2),
    ],
)
def test_differences_are_points_of_shares_and_numbers_of_other_metrics(text, metric, expected):
    assert read_difference(text, metric) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["0.01", "0pt", "1 kg", "101pt"])
def test_other_texts_are_no_difference_of_accuracies(text):
    with pytest.raises(UserError, match="--seeds-for: expected"):
        read_difference(text, ACCURACY)


def call(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_the_command_prints_pairs_and_the_command_that_adds_the_seeds(three):
    found = call("plan", str(three.path), "--seeds-for", "1pt")
    assert found.exit_code == 0
    more = seed_plan(three, 0.01).more
    assert f"edgefl simulate {three.path} --add-seeds {more}" in found.output
    assert "a true difference of 1 points at 95 % with a probability (power) of 80 %" in " ".join(found.output.split())
    assert "a – b" in found.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seeds-for", "1pt", "--power", "1"], "expected a probability between 0 and 1"),
        (["--seeds-for", "1pt", "--rounds", "3"], "cannot be combined"),
    ],
)
def test_wrong_options_are_refused(three, options, message):
    found = call("plan", str(three.path), *options)
    assert message in str(found.exception)
    assert isinstance(found.exception, UserError)
