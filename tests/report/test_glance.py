"""The end of a run: one moment in every row, a winner only where it is certain, and what would decide."""

import math
import os
import re

import pytest

from edgefl.record.events import Event
from edgefl.record.figures import moment
from edgefl.record.tables import event_file
from edgefl.report import comparison, comparison_rows, verdict
from edgefl.report.error_of_seconds import error_interval
from edgefl.report.glance import decide, glance, next_steps, seconds_of_a_seed
from edgefl.report.page.devices import fleet_words
from edgefl.report.paired import difference_data
from edgefl.report.rows import differing

from .conftest import ROUNDS, seed_result, target


def seeds(accuracies, times=None, wanted=0.9, **changes):
    return [
        seed_result(seed, accuracy__final=accuracy, targets=[target(wanted, times[seed])] if times else [], **changes)
        for seed, accuracy in enumerate(accuracies)
    ]


FAR = {"a": seeds([0.86, 0.90, 0.94]), "b": seeds([0.91, 0.96, 0.98])}
"""Differences 5, 6 and 4 points: 5 ± t(0.975; 2)/√3 = 5 ± 2.48, although the intervals of both means overlap."""


def answer(run):
    return verdict(run).splitlines()[0]


@pytest.mark.parametrize(
    ("methods", "expected"),
    [
        (FAR, "Best after 40 rounds:  b  95.0 %  (95 % sure, ahead of a)"),
        ({**FAR, "c": seeds([0.1] * 3)}, "Best after 40 rounds:  b  95.0 %  (95 % sure, ahead of all others)"),
        (
            {"a": seeds([0.94, 0.95, 0.96]), "b": seeds([0.95, 0.951, 0.952]), "c": seeds([0.5] * 3)},
            "Best after 40 rounds:  no clear winner: b  95.1 % is ahead  (not decided: a)",
        ),
        (
            {"a": seeds([0.9, 0.91]), "b": seeds([0.88, 0.89])},
            "Best after 40 rounds:  a  90.5 % is ahead  (not decided: 2 seeds, at least 3 needed)",
        ),
        (
            {"a": seeds([0.9]), "b": seeds([0.95])},
            "Best after 40 rounds:  b  95.0 % is ahead  (not decided: one seed, at least 3 needed)",
        ),
        ({"a": seeds([0.9] * 3), "b": seeds([0.9] * 3)}, "Best after 40 rounds:  all methods are equal, 90.0 %"),
        ({"a": seeds([0.9] * 3)}, "Best after 40 rounds:  a  90.0 %"),
    ],
)
def test_a_winner_is_named_only_if_it_is_certain(make_run, methods, expected):
    assert answer(make_run(methods)) == expected


def test_one_method_and_a_baseline(make_run):
    run = make_run({"a": seeds([0.9] * 3), "alone": seeds([0.8] * 3)}, methods=[{"method": "local", "as": "alone"}])
    best, baseline = verdict(run).splitlines()
    assert best == "Best after 40 rounds:  a  90.0 %"
    assert "(a +10.0 points)" in baseline
    assert "behind" not in glance(run).text(100)
    run.scenario["data"] = {"clients": 10}
    for seed in range(3):
        with event_file(run.of("alone", seed).events) as events:
            events.events([Event(1.0, "compute_end", 1, client) for client in range(5 + seed)])
            events.events([Event(2.0, "compute_end", 2, 0), Event(99.0, "compute_drop", 3, 9)])
    assert "(a +10.0 points; 3–5 of 10 clients never trained)" in verdict(run)


def test_a_baseline_takes_no_part(make_run):
    baseline = [{"method": "local", "as": "alone"}]
    run = make_run({**FAR, "alone": seeds([0.99] * 3)}, methods=baseline)
    assert verdict(run).splitlines() == [
        "Best after 40 rounds:  b  95.0 %  (95 % sure, ahead of a)",
        "Baselines, not compared: alone (b −4.0 points).",
    ]
    behind = next(column for column in glance(run).columns if column.head == "behind")
    assert behind.cells[-1] == "baseline"
    without = make_run(FAR, "without", methods=baseline)  # --method a --method b
    assert verdict(without).splitlines() == verdict(run).splitlines()[:1]
    never = [seed_result(seed, targets=[target(0.9, None)]) for seed in range(3)]
    some = [*never[:2], seed_result(2, targets=[target(0.9, 5.0)])]
    reached = make_run({"a": never, "alone": some}, "reached", targets=[0.9], methods=baseline)
    assert "First to 90 %: no method." in verdict(reached).splitlines()


SECOND = [{"kind": "seconds", "limit": 1.0, "accuracy": None}]


@pytest.mark.full
@pytest.mark.parametrize(
    ("alone", "stop", "budgets"),
    [
        (seeds([0.99] * 3, [1.0, 1.0, None]), "rounds", []),
        (seeds([0.99] * 3, [1.0] * 3, stop={"reason": "seconds", "round": 9}, rounds=9), "budget", []),
        (seeds([0.99] * 3, [None] * 3, seconds=0.9, budgets=SECOND), "rounds", SECOND),
        (seeds([0.1] * 3, [None] * 3, rounds=80), "rounds", []),
    ],
)
def test_the_answers_are_the_same_whatever_a_baseline_does(make_run, alone, stop, budgets):
    """It is early with some seeds, ends by a budget, has the only round within one, or more rounds."""
    methods = {
        label: seeds([0.9, 0.91, 0.93 + gain], [9.0, 9.5, 9.9], budgets=budgets)
        for label, gain in (("a", 0), ("b", 0.02))
    }
    without = make_run(methods, "without", stop=stop)
    beside = make_run({**methods, "alone": alone}, stop=stop, methods=[{"method": "local", "as": "alone"}])
    answers = verdict(without).splitlines()
    assert verdict(beside).splitlines()[: len(answers)] == answers
    assert difference_data(beside) == difference_data(without)


def test_a_lower_error_is_better(make_run):
    measured = {"name": "rmse", "better": "lower", "share": False, "title": "RMSE", "ema": None}
    nothing = {"final": None, "best": None, "ema": None}

    def with_errors(errors):
        return [
            seed_result(seed, accuracy=nothing, metric={**measured, "final": each, "best": each})
            for seed, each in enumerate(errors)
        ]

    run = make_run({"a": with_errors([2.0, 2.1, 2.2]), "b": with_errors([0.2, 0.3, 0.41])})
    assert answer(run) == "Best after 40 rounds:  b  0.303  (95 % sure, ahead of a)"
    assert glance(run).heads[1:3] == ["RMSE", "behind"]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ({"a": [9.0, 10.0, 11.0], "b": [13.0, 14.0, 15.0]}, "First to 90 %: a."),
        ({"a": [9.0, 10.0, 11.0], "b": [9.1, 10.1, 11.1]}, "First to 90 %: no clear winner (a, b)."),
        ({"a": [9.0, 10.0], "b": [13.0, 14.0]}, "First to 90 %: a is ahead, not decided."),
        ({"a": [9.0, 10.0, 11.0], "b": [None] * 3}, "First to 90 %: a, the only one."),
        ({"a": [9.0, 10.0, 11.0], "b": [5.0, 6.0, None]}, "First to 90 %: no clear winner (a, b)."),
        ({"a": [9.0, 10.0, 11.0], "b": [25.0, None, None]}, "First to 90 %: a, the only one."),
        ({"a": [None] * 3, "b": [None] * 3}, "First to 90 %: no method."),
        ({"a": [7.0, None, None], "b": [None] * 3}, "First to 90 %: no method with every seed (a with some)."),
        ({"a": [9.0, 10.0, 11.0]}, "First to 90 %: a, after 10.0 s."),
    ],
)
def test_the_first_to_a_target(make_run, times, expected):
    """A round lasts 50 s / 40: equal differences of 0.1 s are less than it, and decide nothing."""
    run = make_run({label: seeds([0.9] * len(found), found) for label, found in times.items()})
    assert verdict(run).splitlines()[1] == expected


def test_every_row_shows_the_end_of_the_last_round_within_all_budgets(make_run):
    """Rounds of 5 s, 10 MB and 100 J: the bytes allow 7 of 10 rounds, and the target is reached after them."""
    budgets = [{"kind": kind, "limit": limit, "accuracy": None} for kind, limit in (("seconds", 45.0), ("bytes", 75e6))]
    result = seed_result(
        rounds=10,
        seconds=50.0,
        joules=1000.0,
        bytes__down=40_000_000,
        bytes__up=60_000_000,
        budgets=budgets,
        targets=[target(0.8, 30.0), target(0.9, 40.0)],
    )
    run = make_run({"a": [result]}, stop="rounds")
    (row,) = comparison_rows(run)
    assert (row["seconds"].mean, row["rounds"].mean, row["joules"].mean, row["bytes"].mean) == (35.0, 7, 700, 70e6)
    assert row.final.mean == run.rounds_of("a", 0)["accuracy"].to_pylist()[6]
    assert [row.targets[goal].reached for goal in (0.8, 0.9)] == [1, 0]
    table = glance(run)
    assert table.title[-1].startswith("Best within 45 s, 75 MB:  a  ")
    assert table.heads == ["method", "accuracy", "80 % at", "90 % at", "time", "traffic", "energy", "ended by"]
    assert table.lines == [["a", table.lines[0][1], "30.0 s", "never", "35.0 s", "70.0 MB", "700 J", "last round"]]
    assert run.summary["methods"]["a"][0]["seconds"] == 50.0


def test_without_a_whole_round_nothing_is_shown_as_reached(make_run):
    first = {"kind": "seconds", "limit": 0.5, "accuracy": None}
    result = make_run({"a": [seed_result(budgets=[first], targets=[target(0.9, 40.0)])]}).moments["a"][0]
    assert (result.rounds, result.seconds, result.metric.final, result.targets[0].reached) == (0, 0.0, None, False)


def test_a_mean_over_seeds_contains_no_zeros_of_seeds_without_a_round(make_run):
    """Rounds of 1.25 s and of 50 s: within 10 s, seed 0 has eight rounds and seed 1 has none."""
    budget = [{"kind": "seconds", "limit": 10.0, "accuracy": None}]
    slow = seed_result(1, seconds=50.0 * ROUNDS, budgets=budget)
    run = make_run({"a": [seed_result(0, budgets=budget), slow]})
    assert answer(run) == "Best within 10 s:  no method with every seed: a trained in 1 of 2 seeds"
    (row,) = comparison_rows(run)
    assert (row["seconds"], row["joules"], row["bytes"], row["rounds"].mean) == (None, None, None, 4.0)
    (row,) = comparison_rows(make_run({"a": [slow]}, "continued", stop="rounds"))
    assert (row["seconds"].mean, row["rounds"].mean) == (2000.0, ROUNDS)


def test_five_methods_fit_24_lines_of_100_columns_and_every_number_of_an_answer_is_in_the_table(make_run):
    methods = {
        f"method{number}": seeds([0.98 - 0.02 * number - each for each in (0, 0.003, 0.005)], [9.0 + number] * 3, 0.8)
        for number in range(5)
    }
    for results in methods.values():
        for result in results:
            result["stop"]["reason"] = "joules"
    run = make_run(methods, data={"name": "digits"})
    for width in (80, 100, 160):
        text = f"{glance(run).text(width)}\n\n" + "\n".join(next_steps(run, run.path.relative_to(run.path.parent)))
        lines = text.splitlines()
        assert len(lines) <= 24, text
        assert max(map(len, lines)) <= max(width, 80), text
        rows = [line for line in lines if re.match(r"method\d ", line)]
        assert [line.split()[0] for line in rows] == sorted(methods), "best first, no row wraps"
    table = "\n".join(" ".join(row) for row in glance(run).lines)
    shown = [number for line in verdict(run).splitlines() for number in re.findall(r"\d+\.\d", line)]
    assert shown
    assert all(number in table for number in shown)


def test_what_would_decide_is_named_with_its_command_and_its_time(make_run):
    run = make_run({"a": seeds([0.90, 0.92, 0.94]), "b": seeds([0.89, 0.93, 0.90])})
    places = [(label, seed) for seed in range(3) for label in "ab"]
    for number, (label, seed) in enumerate(places):
        file = run.paths.of(label, seed).rounds
        os.utime(file, (1e9 + 30 * number, 1e9 + 30 * number))
    assert seconds_of_a_seed(run) == 60
    more, question = decide(run)
    assert question == "the best"
    wanted = f"Decide   edgefl simulate {run.path} --add-seeds {more}   (the best, about {more:.2g} min)"
    assert next_steps(run, run.path)[-1] == wanted
    close = make_run({"a": seeds([0.900, 0.92, 0.94]), "b": seeds([0.899, 0.93, 0.94])}, folder="close")
    assert re.search(r"too close: about \d0+ more seeds needed", next_steps(close, close.path)[-1])
    assert decide(make_run(FAR, folder="far")) is None
    assert decide(make_run({"a": seeds([0.9, 0.8]), "b": seeds([0.9, 0.8])}, folder="equal")) is None
    ahead, _ = decide(make_run({"a": seeds([0.9, 0.91]), "b": seeds([0.8, 0.81])}, folder="two"))
    assert ahead >= 1


def test_the_smoothed_accuracy_decides_where_the_scenario_says_so(make_run):
    high, low = seeds([0.9] * 3, accuracy__ema=0.7), seeds([0.8] * 3, accuracy__ema=0.75)
    run = make_run({"a": high, "b": low}, target_metric="accuracy_ema")
    assert answer(run) == "Best after 40 rounds:  b  75.0 %  (95 % sure, ahead of a)"


NOTHING = {"accuracy__final": None, "accuracy__best": None, "accuracy__ema": None}


def test_without_training_the_costs_of_a_round_are_compared(make_run):
    cheap, dear = ([seed_result(seed, joules=joules, **NOTHING) for seed in range(3)] for joules in (400.0, 4000.0))
    run = make_run({"a": dear, "b": cheap}, trained=False)
    lines = verdict(run).splitlines()
    assert lines[0] == "Least time a round:  all methods are equal, 1.25 s"
    assert lines[2] == "Least energy a round:  b  10.0 J  (95 % sure, ahead of a)"
    assert glance(run).heads[:5] == ["method", "time a round", "traffic a round", "energy a round", "rounds"]


def ended_at_once(label, reason, message):
    stop = {"reason": reason, "round": 0, "message": f"method '{label}'{message}"}
    return [seed_result(seed, rounds=0, stop=stop, accuracy__final=0.1) for seed in (0, 1)]


def test_methods_that_all_ended_before_their_first_round_share_one_cause(make_run):
    fault = ", round 1, measuring a local step: KeyError: 3"
    run = make_run({label: ended_at_once(label, "fault", fault) for label in ("a", "b", "c")})
    assert verdict(run).splitlines() == [
        "No method completed a round: there is nothing to compare.",
        "a, b, c: ended by fault (2 of 2 seeds): round 1, measuring a local step: KeyError: 3.",
    ]
    assert "KeyError" in glance(run).text(100)


@pytest.mark.parametrize(("metric", "hint"), [("rmse", True), ("mae", True), ("perplexity", False)])
def test_a_regression_that_diverges_at_once_says_what_to_try(make_run, metric, hint):
    measured = {"name": metric, "better": "lower", "share": False, "title": metric, "final": 1e30}
    nothing = {"final": None, "best": None, "ema": None}
    message = " diverged in round 1: the loss of client 3 is not finite"
    results = {
        "a": [{**each, "metric": measured, "accuracy": nothing} for each in ended_at_once("a", "diverged", message)]
    }
    assert ("training.local.lr" in verdict(make_run(results))) is hint


def test_two_runs_show_what_changed(make_run):
    slow = make_run({"a": seeds([0.9] * 3, [30.0] * 3)}, folder="lte", network={"latency": 0.08})
    fast = make_run({"a": seeds([0.9] * 3, [15.0] * 3), "b": seeds([0.8] * 3)}, folder="5g", network={"latency": 0.02})
    table = comparison(slow, fast)
    assert table.title == ["latency=80 ms → latency=20 ms", "Changed: latency 80 ms → 20 ms"]
    cells = dict(zip(table.heads, table.lines[0], strict=True))
    assert cells["90 % at"] == "30.0 → 15.0 s (−50 %)"
    assert cells["accuracy"] == "90.0 %"
    never = make_run({"a": seeds([0.9] * 3, [None] * 3)}, folder="never", training={"rounds": 4})
    assert comparison(slow, never).lines[0][2] == "30.0 s → never"
    assert "latency=20 ms alone: b." in table.notes


@pytest.mark.parametrize(
    ("second", "cell"), [((1, 2), "20.0 → 10.0 s (−50 %)"), ((2, 3), "15.0 s"), ((), "15.0 → 0 s")]
)
def test_a_change_is_that_of_the_seeds_that_both_runs_have(make_run, second, cell):
    one = make_run({"a": [seed_result(seed, seconds=10.0 + 10 * seed) for seed in (0, 1)]}, folder="one")
    late = [seed_result(seed, seconds=time) for seed, time in zip(second, (10.0, 90.0), strict=False)]
    none = [seed_result(seed, seconds=0.0, rounds=0, stop={"reason": "seconds", "round": 0}) for seed in (0, 1)]
    table = comparison(one, make_run({"a": late or none}, folder="other"))
    assert dict(zip(table.heads, table.lines[0], strict=True))["time"] == cell
    assert any(note.startswith("Figures are of 1 of 3 seeds") for note in table.notes) is (second == (1, 2))


def test_the_changes_are_those_of_the_command_and_not_what_follows_from_them(make_run):
    figures = ({"name": "board", "compute": {"fp32_peak": peak, "memory_bandwidth": peak}} for peak in (2e9, 1e9))
    fleets = [[{"profile": each, "pace": 1.0}] for each in figures]
    links = [{"links": {"5g": {"up": {"low": low}}}} for low in (1e6, 2e6)]
    runs = [make_run(FAR, folder=str(n), fleet=fleets[n], network=links[n], keep_models=n == 0) for n in (0, 1)]
    changed = "Changed: profile board (its figures); keep_models true → false; low 1 Mbit/s → 2 Mbit/s"
    assert comparison(*runs).title[1] == changed
    runs[0].setting, runs[1].setting = {}, {"network.links.5g.up.low": "2 Mbit/s", "fleet.0.pace": 2}
    assert comparison(*runs).title[1] == "Changed: low 1 Mbit/s → 2 Mbit/s; pace 1 → 2"
    assert differing([{"network": {"up": {"rate": each}}} for each in (1e6, 2e6)]) == ["network.up"]


def test_only_limits_that_ended_a_run_are_those_of_its_answer(make_run):
    budgets = [{"kind": "seconds", "limit": 60.0, "accuracy": None}]
    assert answer(make_run({"a": seeds([0.9], budgets=budgets)})).startswith("Best after 40 rounds:")
    stop = {"reason": "seconds", "round": ROUNDS}
    ended = {"a": seeds([0.9], budgets=budgets, stop=stop), "b": seeds([0.8], budgets=budgets)}
    assert answer(make_run(ended, folder="ended")).startswith("Best within 60 s:")


def test_the_moment_of_a_real_run_agrees_with_its_summary(small_run):
    for label, results in small_run.results.items():
        for result in results:
            end = moment(result, small_run.columns_of(label, result.seed))
            assert end.metric == result.metric
            assert end.seconds == pytest.approx(result.seconds)
            assert end.joules == pytest.approx(result.joules)


def test_details_say_what_the_evidence_of_the_fleet_implies(make_run):
    measured = {"name": "a", "provenance": {"evidence": {"compute": {"error": 0.102}}}}
    timed = {**measured, "name": "d", "compute": {"measured_steps": [{}]}}
    groups = [measured, {"name": "b"}, {"name": "c"}, timed]
    fleet = [{"profile": each, "share": 0.25} for each in groups]
    run = make_run(FAR, fleet=fleet)
    places = [{"clients": [0, 1]}, {"count": 2}, {"clients": [4, 5]}, {"count": 2}]
    numbered = [{"profile": each, **place} for each, place in zip(groups, places, strict=True)]
    other = make_run(FAR, "numbered", fleet=numbered)
    assert error_interval(other) == error_interval(run)
    assert fleet_words(other) == "2 a, 2 b, 2 c, 2 d"
    trains = [seed_result(communication={"exposed_seconds": 0.0, "hidden_seconds": 0.0})]
    served = make_run({**FAR, "server": trains}, "server", fleet=fleet, methods=[{"method": "central", "as": "server"}])
    assert error_interval(served) == error_interval(run)
    notes = comparison(run, detailed=True).notes
    assert notes[1] == (
        "Seconds of training are known to ±10 % (a), a factor of 2 to 3 (b, c) and ±10 % where no measured step serves "
        "(d)."
    )
    assert notes[0] in glance(run).notes
    moment = next(iter(run.moments.values()))[0]
    training = 1 - moment.communication.exposed_seconds / moment.seconds
    slower = 3**0.5 * 1.102 ** (2.45 / 2)
    most = 1 + training * (slower - 1)
    joules = math.exp(math.hypot(math.log(most), math.log(2.2)))
    assert f"to {most:.2g} times these" in notes[0]
    assert f"to {joules:.2g} times (" in notes[0]
    (line,) = comparison(make_run(FAR, "seconds", fleet=fleet, cost={"kind": "seconds"}), detailed=True).notes[:1]
    assert line == error_interval(make_run(FAR, "declared", fleet=fleet, cost={"kind": "seconds"}))[0]
    assert line.startswith("Seconds are those of the links and declared training, real joules: 0.45 to 2.2 times")
    cut = {label: [{**each, "critical_client": -1} for each in results] for label, results in FAR.items()}
    (line,) = error_interval(make_run(cut, "cut", fleet=fleet, round_overhead={"start": 0.2, "wait": 0.0}))
    assert line.startswith("Seconds are those of the links, the framework and deadlines, real joules: ")
    assert f"to {joules:.2g} times (" in line
