"""Transfers that break under each protocol, with overlap and in cells."""

from __future__ import annotations

import pytest

from .conftest import cells
from .fair_shares import unfair
from .outages import conserved, outages

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
    assert result.outcome.spent.bytes_dropped == 4_000_000


def test_a_cell_whose_prefetch_fails_downloads_its_parts_again_in_the_round(run):
    timeouts = {"connection": 0.5, "retries": 0}
    options = {"link": ("internet", "cell/0"), "entry": FEDADC, "cohort": 1, "rounds": 8, "timeouts": timeouts}
    usual = in_cells(run, **options)
    relays = usual.of("transfer_start", item="relay", target="cell/0")
    began = {event.round: event.time for event in usual.of("round_start")}
    early = next(event for event in relays if event.time < began[event.round])
    result = in_cells(run, (early.time + 0.2, early.time + 0.9), **options)
    assert result.of("transfer_break", item="relay")[0].time == pytest.approx(early.time + 0.7)
    assert result.of("dropout") == []
    again = result.of("transfer_end", item="relay", target="cell/0", round=early.round)[0]
    sent = usual.of("transfer_end", item="relay", target="cell/0", round=early.round)
    assert len(sent) == 2
    assert again.bytes == sum(event.bytes for event in sent)
    assert [row.aggregated for row in result.outcome.rows] == [1] * 8


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
    assert result.outcome.spent.bytes_broken == 200_000
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
