"""The verdict is plain, right, and says tied where the interval of the difference includes zero."""

from __future__ import annotations

import pytest

from edgefl.report import verdict
from edgefl.report.rows import comparison_rows, notes
from edgefl.report.verdict import verdicts

from .conftest import BUDGETS, seed_result, target

TWO = "Differences are means over the seeds that both methods have, with their 95 % interval (Student's t)."
SEVERAL = (
    "Differences are means over the seeds that both methods have, with Student's t intervals that have the level of "
    "5 % for all comparisons of a sentence (Holm)."
)


def seeds(accuracies, times=None, wanted=0.9, **changes):
    return [
        seed_result(seed, accuracy__final=accuracy, targets=[target(wanted, times[seed])] if times else [], **changes)
        for seed, accuracy in enumerate(accuracies)
    ]


def test_a_winner_is_named_with_its_difference_by_seed_from_each_other_method(make_run):
    """Differences 5, 6 and 4 points: 5 ± t(0.975; 2)/√3 = 5 ± 2.48, although the intervals of both means overlap."""
    run = make_run({"a": seeds([0.86, 0.90, 0.94]), "b": seeds([0.91, 0.96, 0.98])})
    assert verdict(run).splitlines() == [
        "After 40 rounds, b (95.0 [86.0, 100.0] %) wins: it is 5.0 ± 2.5 points above a.",
        TWO,
    ]


def test_several_comparisons_share_the_level(make_run):
    """c is 45.1 ± 0.4 points behind at t(0.9875; 2) = 6.205; a remains alone and is tested with 4.303."""
    run = make_run({"a": seeds([0.94, 0.95, 0.96]), "b": seeds([0.95, 0.951, 0.952]), "c": seeds([0.5, 0.5, 0.5])})
    assert verdict(run).splitlines() == [
        "After 40 rounds, b (95.1 ± 0.2 %) and a (95.0 ± 2.5 %) are tied: b is 0.1 ± 2.2 points above a (the interval "
        "includes zero); it is 45.1 ± 0.4 points above c.",
        SEVERAL,
        "About 635 more seeds would separate b from a (t test by seed, power 80 %, if the present mean is true).",
    ]


def test_methods_that_are_equal_with_every_seed_are_tied(make_run):
    run = make_run({"a": seeds([0.90, 0.92]), "b": seeds([0.90, 0.92]), "c": seeds([0.80, 0.82])})
    assert "are tied: a is equal to b with every seed; it is 10.0 points above c." in verdict(run)


def test_methods_with_fewer_than_two_common_seeds_are_not_compared(make_run):
    run = make_run({"a": seeds([0.90, 0.91, 0.92]), "b": [seed_result(5, accuracy__final=0.8)]})
    assert verdict(run).splitlines()[0] == (
        "After 40 rounds, a (91.0 ± 2.5 %) has the best mean; a cannot be compared with b: they have fewer than "
        "two seeds in common."
    )


def test_a_lower_error_is_below_the_other(make_run):
    measured = {"name": "rmse", "better": "lower", "share": False, "title": "RMSE", "best": None, "ema": None}
    nothing = {"final": None, "best": None, "ema": None}

    def with_errors(errors):
        return [
            seed_result(seed, accuracy=nothing, metric={**measured, "final": each}) for seed, each in enumerate(errors)
        ]

    run = make_run({"a": with_errors([2.0, 3.0]), "b": with_errors([1.5, 2.5])})
    assert "wins: it is 0.500 below a." in verdict(run)


def test_under_common_budgets_the_highest_wins_and_each_stop_is_told(three_methods):
    first, second, *_ = verdict(three_methods).splitlines()
    assert first == (
        "Within 60 s, 500 MB and 5 kJ, whichever runs out first, "
        "fedavg (95.2 ± 0.5 %) wins: it is 1.0 points above fedbr and 2.0 points above fedadc+overlap."
    )
    ended = ["fedadc+overlap ended at the budget of 60 s", "fedbr ended at the budget of 500 MB"]
    assert second == "; ".join([*ended, "fedavg ended at the budget of 5 kJ."])


def test_with_runs_to_the_last_round_each_budget_has_its_own_winner(make_run):
    def at(seconds, joules):
        return [
            {"kind": "seconds", "limit": 30.0, "accuracy": seconds},
            {"kind": "joules", "limit": 3000.0, "accuracy": joules},
        ]

    run = make_run(
        {"a": seeds([0.9] * 3, budgets=at(0.8, 0.6)), "b": seeds([0.9] * 3, budgets=at(0.7, 0.85))},
        stop="rounds",
        budgets={"seconds": 30.0, "joules": 3000.0},
    )
    assert verdict(run).splitlines() == [
        "Within 30 s, a (80.0 %) wins: it is 10.0 points above b.",
        "Within 3 kJ, b (85.0 %) wins: it is 25.0 points above a.",
        TWO,
    ]


def test_a_run_that_ends_within_a_budget_holds_its_final_accuracy_there_and_one_that_was_not_evaluated_holds_none(
    make_run,
):
    within = [{"kind": "seconds", "limit": 60.0, "accuracy": None}]
    beyond = {"seconds": 100.0, "budgets": within}
    run = make_run({"a": seeds([0.9] * 3, budgets=within), "b": seeds([0.95] * 3, **beyond)}, stop="rounds")
    assert verdict(run).splitlines()[0] == "Within 60 s, a has an accuracy of 90.0 %; b has no accuracy to compare."


def test_the_first_to_a_target_is_told_with_those_who_miss_it(make_run):
    run = make_run(
        {
            "a": seeds([0.9] * 3, [10.0, 10.1, 10.2]),
            "b": seeds([0.9] * 3, [20.0, 20.1, 20.2]),
            "c": seeds([0.9] * 3, [5.0, 6.0, None]),
            "d": seeds([0.5] * 3, [None, None, None]),
        }
    )
    assert verdict(run).splitlines()[1] == (
        "a (10.1 ± 0.2 s) reaches 90 % first, 10.0 s before b; c reaches it on 2 of 3 seeds (median 6.00 s); "
        "d does not reach it."
    )


@pytest.mark.parametrize(
    ("times", "sentence"),
    [
        ({"a": [9.0, 10.0, 11.0], "b": [9.5, 10.5, 11.5]}, "a (10.0 ± 2.5 s) reaches 90 % first, 0.500 s before b."),
        (
            {"a": [9.0, 10.0, 11.0], "b": [11.5, 10.5, 9.5]},
            "a (10.0 ± 2.5 s) and b (10.5 ± 2.5 s) are tied as the first to reach 90 %: a is 0.500 ± 4.968 s before b "
            "(the interval includes zero).",
        ),
        ({"a": [9.0, 10.0, 11.0], "b": [None] * 3}, "Only a (10.0 ± 2.5 s) reaches 90 %."),
        ({"a": [None] * 3, "b": [None] * 3}, "No method reaches 90 %."),
        ({"a": [None] * 3}, "a does not reach 90 %."),
        (
            {"a": [7.0, None, None], "b": [None] * 3},
            "No method reaches 90 % on every seed: a reaches it on 1 of 3 seeds.",
        ),
    ],
)
def test_targets_are_told_in_correct_grammar(make_run, times, sentence):
    run = make_run({label: seeds([0.9] * 3, found) for label, found in times.items()})
    assert verdict(run).splitlines()[1] == sentence


def test_one_seed_is_said_to_show_no_spread(make_run):
    run = make_run({"a": seeds([0.9]), "b": seeds([0.95])})
    assert verdict(run).splitlines() == [
        "After 40 rounds, b (95.0 %) is ahead of a (90.0 %).",
        "With one seed the spread is unknown, so no method wins: differences may be due to chance.",
    ]


def test_without_training_time_traffic_and_energy_a_round_are_compared(make_run):
    untrained = {"final": None, "best": None, "ema": None}
    budgets = [{"kind": kind, "limit": amount, "accuracy": None} for kind, amount in BUDGETS.items()]
    run = make_run(
        {
            "a": [seed_result(s, accuracy=untrained, budgets=budgets, seconds=40.0, rounds=40) for s in range(3)],
            "b": [seed_result(s, accuracy=untrained, budgets=budgets, seconds=30.0, rounds=20) for s in range(3)],
        },
        trained=False,
    )
    lines = verdict(run).splitlines()
    assert lines[:2] == [
        "No model was evaluated, so there is no accuracy to compare.",
        "a (1.00 s) needs the least time per round: 0.500 s less than b.",
    ]
    assert len(lines) == 6


def test_a_method_that_ended_before_its_first_round_is_named_and_never_cheapest(make_run):
    nothing = {"accuracy__final": None, "accuracy__best": None, "accuracy__ema": None}
    stalled = [seed_result(0, rounds=0, seconds=0.0, joules=0.0, stop__reason="stalled", **nothing)]
    run = make_run({"gone": stalled, "a": [seed_result(0, **nothing)], "b": [seed_result(0, seconds=90.0, **nothing)]})
    lines = verdict(run).splitlines()
    assert lines[1] == "gone ended before its first round (stalled), so it has no cost per round."
    assert lines[2] == "a (1.25 s) needs the least time per round."
    assert not any("gone" in line for line in lines[2:])


def ended_at_once(label, reason, message):
    stop = {"reason": reason, "round": 0, "message": f"method '{label}'{message}"}
    return [seed_result(seed, rounds=0, stop=stop, accuracy__final=0.1) for seed in (0, 1)]


def test_methods_that_all_ended_before_their_first_round_are_no_tie_and_share_one_cause(make_run):
    fault = ", round 1, measuring a local step: KeyError: 3"
    run = make_run({label: ended_at_once(label, "fault", fault) for label in ("a", "b", "c")})
    assert verdict(run).splitlines() == [
        "No method completed a round, so there is nothing to compare.",
        "a, b and c ended by a fault (2 of 2 seeds): round 1, measuring a local step: KeyError: 3.",
    ]
    remarks = [line for line in notes(comparison_rows(run)) if "KeyError" in line]
    assert remarks == ["a, b and c ended by a fault (2 of 2 seeds): round 1, measuring a local step: KeyError: 3."]


def test_a_round_in_which_a_budget_ended_the_run_has_no_cost_of_a_round(make_run):
    """The run directory of these tests has rounds of 5 MB down and 110 J; the summary says more."""
    nothing = {"accuracy__final": None, "accuracy__best": None, "accuracy__ema": None}
    more = {"rounds": 4, "bytes__down": 24_000_000, "joules": 500.0}
    cut, whole = (
        make_run({"a": [seed_result(0, stop__reason=reason, **more, **nothing)]}, folder=reason, trained=False)
        for reason in ("seconds", "rounds")
    )
    assert verdict(cut).splitlines()[2] == "a needs 5.00 MB of download per round."
    assert verdict(cut).splitlines()[4] == "a needs 110 J of energy per round."
    assert verdict(whole).splitlines()[2] == "a needs 6.00 MB of download per round."
    assert verdict(whole).splitlines()[4] == "a needs 125 J of energy per round."
    end = cut.rounds_of("a", 0).column("seconds")[-1].as_py()
    assert verdict(cut).splitlines()[1] == f"a needs {end / 4:.2f} s of time per round."


@pytest.mark.parametrize(("metric", "hint"), [("rmse", True), ("mae", True), ("perplexity", False)])
def test_a_regression_that_diverges_at_once_says_what_to_try(make_run, metric, hint):
    measured = {"name": metric, "better": "lower", "share": False, "title": metric, "final": 1e30}
    nothing = {"final": None, "best": None, "ema": None}
    message = " diverged in round 1: the loss of client 3 is not finite"
    results = {
        label: [{**each, "metric": measured, "accuracy": nothing} for each in ended_at_once(label, "diverged", message)]
        for label in ("a", "b")
    }
    last = verdict(make_run(results)).splitlines()[-1]
    cause = "a and b ended by divergence (2 of 2 seeds): diverged in round 1: the loss of client 3 is not finite"
    assert last == cause + (
        "; scale the targets to a deviation of about 1, or lower training.local.lr." if hint else "."
    )


def test_the_smoothed_accuracy_decides_where_the_scenario_says_so(make_run):
    high, low = seeds([0.9] * 3, accuracy__ema=0.7), seeds([0.8] * 3, accuracy__ema=0.75)
    run = make_run({"a": high, "b": low}, target_metric="accuracy_ema")
    assert verdict(run) == f"After 40 rounds, b (75.0 %) wins: it is 5.0 points above a.\n{TWO}"


def test_of_several_runs_what_is_true_of_each_is_said_once(make_run):
    one = make_run({"a": seeds([0.9]), "b": seeds([0.95])}, folder="one")
    two = make_run({"a": seeds([0.9]), "b": seeds([0.8])}, folder="two")
    chance = "With one seed the spread is unknown, so no method wins: differences may be due to chance."
    assert verdicts([one, two]) == [
        ("one", ["After 40 rounds, b (95.0 %) is ahead of a (90.0 %)."]),
        ("two", ["After 40 rounds, a (90.0 %) is ahead of b (80.0 %)."]),
        ("every run", [chance]),
    ]
    assert verdicts([one]) == [("", ["After 40 rounds, b (95.0 %) is ahead of a (90.0 %).", chance])]
