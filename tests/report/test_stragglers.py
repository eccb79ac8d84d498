"""Whom the rounds waited for: by hand, and with a deadline against runs with that deadline."""

import pytest

from edgefl.experiment import run
from edgefl.report.page.series import series_of
from edgefl.report.run_result import RunResult
from edgefl.report.stragglers import arrivals, rounds_by, rounds_without, stragglers_of, stragglers_table
from edgefl.report.timeline.data import Round, Timeline, Transfer, read_timeline


def upload(client, round, ended):
    path = (f"client/{client}", "server")
    return Transfer(client, round, round, "up", 10 * round + client, path, 0.0, ended - 1.0, ended, 100, True, 0.0)


TIMELINE = Timeline(
    transfers=[upload(0, 1, 3.0), upload(1, 1, 5.0), upload(2, 1, 9.0), upload(0, 2, 13.0), upload(2, 2, 16.0)],
    rounds=[Round(1, 0.0, 9.5, 2, 1, 0.0, 0.0, (0, 1, 2), server=0.5), Round(2, 9.5, 16.0, 2, 2, 0.0, 0.0, (0, 2))],
)


def test_a_round_without_a_client_ends_with_the_next_arrival_and_the_servers_work():
    assert rounds_without(TIMELINE, {2}) == [5.5, 3.5]
    assert rounds_without(TIMELINE, {1, 2}) == [3.5, 3.5]
    assert rounds_without(TIMELINE, {0, 1, 2}) == [9.5, 6.5]  # nobody would be left


def test_a_deadline_ends_the_rounds_that_are_longer_and_cuts_off_the_late():
    assert rounds_by(TIMELINE, 6.0) == [(6.5, 1), (6.0, 1)]
    assert rounds_by(TIMELINE, 20.0) == [(9.5, 0), (6.5, 0)]


def test_a_deadline_does_to_the_first_round_what_it_does_in_a_run_with_it(small, tmp_path):
    run(small(training__rounds=1, training__cohort=6), out=tmp_path / "whole", train=False)
    timeline = read_timeline(tmp_path / "whole" / "fedavg" / "seed-0")
    [(began, arrived)] = arrivals(timeline)
    deadline = sorted(arrived.values())[3] - began.began + 1e-3
    short = small(training__rounds=1, training__cohort=6, protocol={"kind": "synchronous", "deadline": deadline})
    run(short, out=tmp_path / "short", train=False)
    [result] = RunResult(tmp_path / "short").results["fedavg"]
    assert rounds_by(timeline, deadline) == [(pytest.approx(result.seconds), 6 - len(read_timeline(
        tmp_path / "short" / "fedavg" / "seed-0").rounds[0].aggregated))]  # fmt: skip


def test_the_clients_are_those_that_closed_the_rounds_of_the_log(small_run):
    [one, *_] = series = series_of([small_run])
    found = stragglers_of(one)
    rounds = [round.critical for timeline in one.timelines for round in timeline.rounds]
    assert sum(each.closed for each in found) == len(rounds)
    assert [each.closed for each in found] == sorted((each.closed for each in found), reverse=True)
    assert all(each.link == "5g" and each.waited >= 0 and each.closed <= each.joined for each in found)
    table = stragglers_table(series)
    assert table is not None
    assert {each["client"] for each in table.records} <= set(map(str, rounds))


def test_stages_that_wait_for_all_have_no_stragglers(small, tmp_path):
    secure = {"secure_aggregation": {"kind": "secagg_plus"}}
    run(small(training__rounds=1, training__cohort=6, privacy=secure), out=tmp_path / "run", train=False)
    assert stragglers_table(series_of([RunResult(tmp_path / "run")])) is None
