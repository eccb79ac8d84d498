"""Transfers that break and are repeated, by hand: 1 MB/s, so 1 s down, 2 s computing, 1 s up."""

from __future__ import annotations

import math
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from edgefl.network.transport import LONGEST_WAIT, WAIT_FACTOR, Timeouts

from .conftest import cells
from .fair_shares import conserved, outages, unfair

_TIE = 1e-7


class Tie(Exception):  # noqa: N818
    """Two things happen at one moment: rounding would decide which is first."""


class Told(NamedTuple):
    """When the transfer ended, whether it failed, when its attempts broke, and what they had delivered and lost."""

    ended: float
    failed: bool
    breaks: list[float]
    sent: int
    lost: int


def by_hand(size, bytes_per_second, latency, spans, timeouts):
    """Send ``size`` bytes from 0 s on, over a link that is down during ``spans``, without jitter."""
    began, kept, sent, lost, breaks = 0.0, 0, 0, 0, []
    while True:
        ended, delivered, whole = _attempt(began, size - kept, bytes_per_second, latency, spans, timeouts)
        sent += delivered
        if whole:
            return Told(ended, False, breaks, sent, lost)
        breaks.append(ended)
        total = kept + delivered
        grain = timeouts.chunk or 1
        kept = math.floor(total / grain) * int(grain) if timeouts.resume == "ranges" else 0
        lost += total - kept
        if len(breaks) > timeouts.retries:
            return Told(ended, True, breaks, sent, lost)
        wait = min(timeouts.first_wait * WAIT_FACTOR ** (len(breaks) - 1), LONGEST_WAIT)
        began = ended + wait


def _attempt(began, size, bytes_per_second, latency, spans, timeouts):
    """When an attempt ends, the whole bytes that it delivers, and whether these are all."""
    due = math.inf if timeouts.transfer is None else began + timeouts.transfer
    patience = math.inf if timeouts.connection is None else timeouts.connection
    edges = sorted({edge for span in spans for edge in span if edge > began} | {began + latency, math.inf})
    now, moved, last = began, 0.0, began
    for edge in edges:
        moving = now >= began + latency and not any(down <= now < up for down, up in spans)
        done = now + (size - moved) / bytes_per_second if moving else math.inf
        expires = min(due, math.inf if moving else last + patience)
        first = min(edge, done, expires)
        if sum(abs(each - first) < _TIE for each in (edge, done, expires) if each < math.inf) > 1:
            raise Tie
        if moving:
            moved += bytes_per_second * ((size - moved) / bytes_per_second if first == done else first - now)
            last = first
        if first == done:
            return first, size, True
        if first == expires:
            return first, math.floor(moved + 1e-6), False
        now = edge
    raise AssertionError("the link is never up again")


def one(run, *spans, link=("internet", "client/0"), rates=(8e6,), rounds=1, **options):
    result = run(rates=rates, rounds=rounds, capacity_changes=outages(*spans, link=link), **options)
    assert unfair(result) == []
    conserved(result)
    return result


def near(seconds):
    return pytest.approx(seconds, rel=1e-9)


def test_after_its_last_attempt_a_transfer_fails_and_its_client_drops_out(run):
    result = one(run, rates=[4e6, 8e6], timeouts={"transfer": 1.25})
    failed = 5 * 1.25 + 1 + 1.6 + 1.6**2 + 1.6**3
    (row,) = result.outcome.rows
    assert result.of("dropout", item="timeout")[0].time == row.seconds == near(failed)
    assert row.aggregated == 1
    spent = result.outcome.spent
    assert (spent["transfers_breaks"], spent["transfers_retries"], spent["transfers_failed"]) == (5, 4, 1)
    assert (spent["bytes_broken"], spent["bytes_dropped"], spent["bytes_useful"]) == (5 * 625_000, 0, 2_000_000)
    kept = one(run, (0.5, 99.0), timeouts={"connection": 1.0, "resume": "ranges", "retries": 0})
    assert (kept.outcome.spent["bytes_broken"], kept.outcome.spent["bytes_dropped"]) == (0, 500_000)
    assert kept.of("dropout", item="timeout")[0].time == near(1.5)


def test_failed_attempts_draw_power_and_the_radio_is_quiet_between_them(run):
    result = one(run, (0.5, 4.0), timeouts={"connection": 1.0})
    radio = sum(event.joules for event in result.events if event.kind in ("transfer_end", "transfer_drop"))
    # Attempts of 1.5, 1 and 1 s, the upload of 1 s, at 2 W; 2.5 MB at 1 J/MB.
    assert radio == near(2 * (1.5 + 1 + 1 + 1) + 2.5)
    idle = sum(event.joules for event in result.of("idle"))
    assert idle == near(6.1 + 1.0)


def test_a_round_that_closes_during_a_wait_ends_the_transfer(run):
    # Broken at 1.5 and 3.5 s; another attempt would begin at 5.1 s, in the second round.
    options = {"timeouts": {"connection": 1.0}, "protocol": {"deadline": 4.5}, "rounds": 2}
    result = one(run, (0.5, 4.2), rates=[8e6, 8e6], **options)
    assert [event.time for event in result.of("lost", item="late", round=1)] == [4.5]
    assert [event.time for event in result.of("transfer_start", client=0, round=1)] == [0, near(2.5)]
    assert [row.aggregated for row in result.outcome.rows] == [1, 2]
    assert (result.outcome.spent["bytes_broken"], result.outcome.spent["transfers_retries"]) == (500_000, 1)


SPANS = st.lists(st.tuples(st.floats(0.01, 2.0), st.floats(0.01, 4.0)), max_size=6)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    gaps=SPANS,
    rate=st.floats(2e6, 2e7),
    latency=st.sampled_from([0.0, 0.05, 0.31]),
    connection=st.none() | st.floats(0.1, 2.0),
    transfer=st.floats(0.3, 5.0),
    retries=st.integers(0, 6),
    first_wait=st.floats(0.1, 2.0),
    resume=st.sampled_from([{}, {"resume": "ranges"}, {"resume": "ranges", "chunk": 130_000}]),
)
def test_every_attempt_is_that_of_a_second_derivation(
    run, gaps, rate, latency, connection, transfer, retries, first_wait, resume
):
    spans, now = [], 0.0
    for up, down in gaps:
        spans.append((now + up, now + up + down))
        now += up + down
    options = {
        "connection": connection, "transfer": transfer, "retries": retries, "first_wait": first_wait, **resume,
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


FEDADC = {"method": "fedadc", "overlap": True}


def sound(result):
    assert unfair(result) == []
    conserved(result)
    return result


def in_cells(run, *spans, link, **options):
    rates = [8e6, 8e6, 8e6]
    result = run(
        rates=rates,
        topology=cells(rates),
        capacity_changes=outages(*spans, link=link),
        **{"protocol": {"kind": "hierarchical"}, "rounds": 1, **options},
    )
    return sound(result)


def test_a_cell_whose_download_fails_loses_its_clients_and_no_others(run):
    timeouts = {"connection": 1.0, "retries": 1}
    result = in_cells(run, (0.0, 50.0), link=("internet", "cell/0"), timeouts=timeouts)
    assert sorted(event.client for event in result.of("dropout", item="backhaul")) == [0, 2]
    assert {event.time for event in result.of("dropout")} == {3.0}
    assert result.outcome.rows[0].aggregated == 1
    assert result.of("compute_start", client=0) == []


def test_a_cell_whose_upload_fails_loses_the_updates_that_it_has(run):
    timeouts = {"connection": 1.0, "retries": 0}
    result = in_cells(run, (4.5, 50.0), link=("cell/0", "internet"), timeouts=timeouts)
    assert sorted(event.client for event in result.of("dropout", item="backhaul")) == [0, 2]
    assert {event.client for event in result.of("transfer_end", item="up")} == {0, 1, 2}
    assert result.outcome.rows[0].aggregated == 1
    assert [job.client for job in result.learner.discarded] == [0, 2]
    assert result.outcome.spent["bytes_dropped"] == 4_000_000


def prefetching(run, timeouts, *spans):
    """FedADC with overlap; the link of the first client that prefetches is down, at times after that prefetch began."""
    options = {"rates": [8e6] * 3, "cohort": 1, "rounds": 8, "timeouts": timeouts}
    usual = run(FEDADC, **options)
    prefetch = usual.of("transfer_start", item="prefetch")[0]
    changes = outages(
        *((prefetch.time + began, prefetch.time + ended) for began, ended in spans),
        link=("internet", f"client/{prefetch.client}"),
    )
    return prefetch, usual, sound(run(FEDADC, **options, capacity_changes=changes))


def test_a_prefetch_that_fails_is_in_vain_and_its_round_sends_its_parts_again(run):
    prefetch, usual, result = prefetching(run, {"connection": 0.5, "retries": 0}, (0.2, 0.9))
    assert result.of("dropout") == []
    assert [event.bytes for event in result.of("transfer_break", item="prefetch")] == [200_000]
    assert result.outcome.spent["bytes_broken"] == 200_000
    assert len(result.of("lost", item="prefetched_in_vain", client=prefetch.client)) == 1
    place = {"round": prefetch.round, "client": prefetch.client}
    sent = result.of("transfer_end", item="down", **place)[0]
    assert sent.bytes == sum(event.bytes for event in usual.of("transfer_end", **place) if event.item != "up")
    assert result.outcome.seconds == pytest.approx(usual.outcome.seconds + 1)


def test_a_prefetch_that_fails_in_its_round_ends_the_clients_participation(run):
    # Its round begins 3 s after the prefetch, which has then stalled for 2.8 s.
    prefetch, _, result = prefetching(run, {"connection": 4.0, "retries": 0}, (0.2, 9.0))
    dropout = result.of("dropout")[0]
    assert (dropout.item, dropout.round, dropout.client) == ("timeout", prefetch.round, prefetch.client)
    assert dropout.time == pytest.approx(prefetch.time + 4.2)
    assert result.of("transfer_start", item="down", round=prefetch.round)[0].time == pytest.approx(prefetch.time + 3)


@pytest.mark.parametrize(
    ("began", "dropped", "seconds"),
    [(2.2, [], 26), (6.2, [2], 24)],  # the link of cell 0 fails while it prefetches for client 2, or later
)
def test_a_prefetch_is_in_vain_if_its_cell_fails_later_and_repeated_if_it_fails_itself(run, began, dropped, seconds):
    options = {"rates": [8e6] * 6, "cohort": 2, "rounds": 4, "protocol": {"kind": "hierarchical"}}
    changes = outages((began, began + 0.7), link=("internet", "cell/0"))
    timeouts = {"connection": 0.5, "retries": 0}
    options |= {"topology": cells([8e6] * 6), "timeouts": timeouts, "capacity_changes": changes}
    result = sound(run(FEDADC, **options))
    assert [event.client for event in result.of("dropout", item="backhaul")] == dropped
    assert result.outcome.spent["bytes_prefetched_in_vain"] == 1_000_000 * len(dropped)
    assert result.outcome.seconds == pytest.approx(seconds)


@pytest.mark.parametrize("protocol", [
    {"kind": "asynchronous", "buffer": 1, "ahead": 2}, {"retries": 2}, {"deadline": 9.0, "late": "partial"},
    {"over_select": 1.5},
])  # fmt: skip
@pytest.mark.parametrize("entry", [FEDADC, "scaffold"])
def test_every_protocol_goes_on_without_the_clients_whose_transfers_fail(run, protocol, entry):
    spans = [(0.7 + 3 * number, 2.4 + 3 * number) for number in range(12)]
    result = sound(
        run(
            entry,
            rates=[8e6, 6e6, 4e6],
            cohort=2,
            rounds=5,
            timeouts={"connection": 1.0, "retries": 1, "first_wait": 0.1},
            protocol=protocol,
            capacity_changes=outages(*spans),
        )
    )
    assert result.of("transfer_break")
    assert result.outcome.rounds == 5
