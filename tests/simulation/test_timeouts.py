"""Transfers that break and are repeated, by hand: 1 MB/s, so 1 s down, 2 s computing, 1 s up."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from edgefl.network.timeouts import Timeouts
from edgefl.randomness import generator

from .attempts_by_hand import Tie
from .attempts_by_hand import transfer as by_hand
from .fair_shares import unfair
from .outages import conserved, outages


def one(run, *spans, link=("internet", "client/0"), rates=(8e6,), rounds=1, **options):
    result = run(rates=rates, rounds=rounds, capacity_changes=outages(*spans, link=link), **options)
    assert unfair(result) == []
    conserved(result)
    return result


def near(seconds):
    return pytest.approx(seconds, rel=1e-9)


def test_an_outage_beyond_the_time_out_breaks_a_download_which_is_then_sent_again_from_its_start(run):
    # Down at 0.5 s, so broken at 1.5 s; another attempt at 2.5 s finds the outage and breaks at 3.5 s; the next begins
    # 1.6 s later.
    result = one(run, (0.5, 4.0), timeouts={"connection": 1.0})
    assert [event.time for event in result.of("transfer_break")] == [near(1.5), near(3.5)]
    assert [event.bytes for event in result.of("transfer_break")] == [500_000, 0]
    assert result.of("transfer_end", item="down")[0].time == near(6.1)
    spent, (row,) = result.outcome.spent, result.outcome.rows
    assert (row.seconds, row.aggregated) == (near(9.1), 1)
    assert (spent.bytes_down, spent.bytes_up, spent.bytes_useful) == (1_500_000, 1_000_000, 2_000_000)
    assert (spent.bytes_broken, spent.breaks, spent.repeats, spent.failures) == (500_000, 2, 2, 0)


def test_after_its_last_attempt_a_transfer_fails_and_its_client_drops_out(run):
    result = one(run, rates=[4e6, 8e6], timeouts={"transfer": 1.25})
    failed = 5 * 1.25 + 1 + 1.6 + 1.6**2 + 1.6**3
    (row,) = result.outcome.rows
    assert result.of("dropout", item="timeout")[0].time == row.seconds == near(failed)
    assert row.aggregated == 1
    spent = result.outcome.spent
    assert (spent.breaks, spent.repeats, spent.failures) == (5, 4, 1)
    assert (spent.bytes_broken, spent.bytes_dropped, spent.bytes_useful) == (5 * 625_000, 0, 2_000_000)
    kept = one(run, (0.5, 99.0), timeouts={"connection": 1.0, "resume": "ranges", "retries": 0})
    assert (kept.outcome.spent.bytes_broken, kept.outcome.spent.bytes_dropped) == (0, 500_000)
    assert kept.of("dropout", item="timeout")[0].time == near(1.5)


def test_each_random_wait_has_a_draw_of_its_own(run):
    result = one(run, (0.5, 9.0), timeouts={"connection": 1.0, "jitter": 0.2})
    draws = [float(generator(0, "back-off", "server", "client/0", 0, "down", number).random()) for number in (1, 2, 3)]
    waits = [1.6**number * (1 + 0.2 * (2 * draw - 1)) for number, draw in enumerate(draws)]
    assert [event.seconds for event in result.of("transfer_break")] == [near(wait) for wait in waits]
    assert len({round(wait / 1.6**number, 9) for number, wait in enumerate(waits)}) == 3


def test_failed_attempts_draw_power_and_the_radio_is_quiet_between_them(run):
    result = one(run, (0.5, 4.0), timeouts={"connection": 1.0})
    radio = sum(event.joules for event in result.events if event.kind in ("transfer_end", "transfer_drop"))
    # Attempts of 1.5, 1 and 1 s, the upload of 1 s, at 2 W; 2.5 MB at 1 J/MB.
    assert radio == near(2 * (1.5 + 1 + 1 + 1) + 2.5)
    idle = sum(event.joules for event in result.of("idle"))
    assert idle == near(6.1 + 1.0)


def test_budgets_of_bytes_count_what_was_lost(run):
    options = {"timeouts": {"connection": 1.0}, "rounds": 3, "budgets": {"bytes": 2_400_000}}
    assert one(run, (0.5, 1.9), **options).outcome.rounds == 0
    assert one(run, **options).outcome.rounds == 1


def test_a_round_that_closes_during_a_wait_ends_the_transfer(run):
    # Broken at 1.5 and 3.5 s; another attempt would begin at 5.1 s, in the second round.
    options = {"timeouts": {"connection": 1.0}, "protocol": {"deadline": 4.5}, "rounds": 2}
    result = one(run, (0.5, 4.2), rates=[8e6, 8e6], **options)
    assert [event.time for event in result.of("lost", item="late", round=1)] == [4.5]
    assert [event.time for event in result.of("transfer_start", client=0, round=1)] == [0, near(2.5)]
    assert [row.aggregated for row in result.outcome.rows] == [1, 2]
    assert (result.outcome.spent.bytes_broken, result.outcome.spent.repeats) == (500_000, 1)


SPANS = st.lists(st.tuples(st.floats(0.01, 2.0), st.floats(0.01, 4.0)), max_size=6)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    gaps=SPANS,
    rate=st.floats(2e6, 2e7),
    latency=st.sampled_from([0.0, 0.05, 0.31]),
    connection=st.none() | st.floats(0.1, 2.0),
    transfer=st.floats(0.3, 5.0),
    retries=st.integers(0, 6),
    waits=st.tuples(st.floats(0.1, 2.0), st.floats(1.0, 3.0), st.floats(2.0, 4.0)),
    resume=st.sampled_from([{}, {"resume": "ranges"}, {"resume": "ranges", "chunk": 130_000}]),
)
def test_every_attempt_is_that_of_a_second_derivation(
    run, gaps, rate, latency, connection, transfer, retries, waits, resume
):
    spans, now = [], 0.0
    for up, down in gaps:
        spans.append((now + up, now + up + down))
        now += up + down
    first_wait, factor, longest_wait = waits
    options = {
        "connection": connection, "transfer": transfer, "retries": retries, "first_wait": first_wait,
        "factor": factor, "longest_wait": longest_wait, **resume,
    }  # fmt: skip
    try:
        told = by_hand(1_000_000, rate / 8, latency, spans, Timeouts(**options))
    except Tie:
        assume(False)
    result = one(run, *spans, rates=[rate], latency=latency, timeouts=options)
    breaks = result.of("transfer_break", item="down")
    assert [event.time for event in breaks] == pytest.approx(told.breaks, rel=1e-9)
    moved = [event for event in result.events if event.kind in ("transfer_end", "transfer_drop")]
    downs = [event for event in moved if event.item == "down"]
    assert downs[-1].time == near(told.ended)
    assert (downs[-1].kind == "transfer_drop") == told.failed == bool(result.of("dropout", item="timeout", round=1))
    assert sum(event.bytes for event in downs) == told.sent
    assert sum(event.bytes for event in breaks) == told.lost
    assert told.sent - told.lost == 1_000_000 or told.failed
