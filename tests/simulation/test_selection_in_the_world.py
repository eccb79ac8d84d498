"""Selection and the allocation of bandwidth in the world."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import pytest

from edgefl.fleet import DeviceProfile
from edgefl.scheduling.bandwidth.base import ALLOCATIONS, BandwidthSpec, Order
from edgefl.scheduling.selection.uniform import UniformSelector
from edgefl.training.faults import PartFault

from .conftest import device
from .fair_shares import unfair

RATES = [8e6, 8e6, 1e6, 4e6]


def test_what_is_foreseen_is_what_a_client_alone_takes(run):
    # Alone on its path a client of 8 Mbit/s takes 4 s, one of 4 Mbit/s 6 s, one of 1 Mbit/s 18 s.
    for deadline, expected in ((4.0, [0, 1]), (6.0, [0, 1, 3]), (18.0, [0, 1, 2, 3])):
        selector = {"kind": "deadline", "deadline": deadline}
        result = run(rates=RATES, rounds=1, selector=selector)
        assert [job.client for job in result.learner.aggregated[0]] == expected
        assert result.outcome.seconds == pytest.approx(deadline)


def test_oort_hears_losses_and_seconds_of_finished_rounds(run):
    result = run(rates=RATES, cohort=2, rounds=30, selector="oort")
    picked = [job.client for round in result.learner.aggregated[15:] for job in round]
    # The slowest is tried, and then mostly avoided.
    assert picked.count(2) < min(picked.count(0), picked.count(1))
    assert {job.client for round in result.learner.aggregated for job in round} == {0, 1, 2, 3}


def picks(monkeypatch, refused=None):
    """The rounds that selection is asked for; it fails at one of them."""
    asked = []
    pick = UniformSelector.pick

    def picking(self, round, *others):
        asked.append(round)
        if round == refused:
            raise ValueError("not this one")
        return pick(self, round, *others)

    monkeypatch.setattr(UniformSelector, "pick", picking)
    return asked


@pytest.mark.parametrize("overlap", [False, True])
def test_every_cohort_is_chosen_once(run, monkeypatch, overlap):
    asked = picks(monkeypatch)
    run({"method": "fedadc", "overlap": overlap}, rates=RATES, cohort=2, rounds=6, evaluate_every=2)
    assert asked == list(range(6))


def test_selection_that_fails_once_ends_the_run_when_its_round_comes(run, monkeypatch):
    asked = picks(monkeypatch, refused=2)
    ended = run(rounds=9).outcome
    assert (ended.reason, ended.rounds) == ("fault", 2)
    assert "not this one" in str(ended.fault)
    assert asked == [0, 1, 2]


KINDS = ["proportional", "shortest_first", "least_makespan", {"kind": "least_makespan", "downloads": True}]


def ends(finished, item):
    return {event.client: event.time for event in finished.of("transfer_end", item=item) if event.round == 1}


def test_the_world_tells_an_allocation_what_comes_after_a_transfer(run):
    finished = run(
        rates=(8e6, 4e6), server=8e6, rounds=1, protocol={"deadline": 60.0}, bandwidth="deadline_first",
        devices=[device(), device(0.5e9)],
    )  # fmt: skip
    outlooks = {(each.client, each.item): each.facts["outlook"] for each in finished.of("transfer_start")}
    # 2 s or 4 s of training, and 1 MB up at 8 or 4 Mbit/s.
    assert outlooks[0, "down"] == {"up": False, "after": pytest.approx(3.0), "deadline": 60.0}
    assert outlooks[1, "down"] == {"up": False, "after": pytest.approx(6.0), "deadline": 60.0}
    assert outlooks[1, "up"] == {"up": True, "after": 0.0, "deadline": 60.0}
    # The second is due at 54 s, the first at 57 s: 4 Mbit/s each, since the second can use no more.
    assert ends(finished, "down") == {0: pytest.approx(2.0), 1: pytest.approx(2.0)}
    assert unfair(finished) == []


def test_slow_computers_are_served_first_and_the_round_is_shorter(run):
    world = {"rates": (80e6,) * 2, "server": 8e6, "rounds": 1, "devices": [device(), device(0.5e9)]}
    equal = run(**world)
    # 2 s for both downloads; 2 s and 4 s of training; the uploads of 1 s do not meet: 2 + 4 + 1.
    assert ends(equal, "up") == {0: pytest.approx(5.0), 1: pytest.approx(7.0)}
    least = run(**world, bandwidth={"kind": "least_makespan", "downloads": True})
    # The second downloads first, until 1 s; it computes until 5 s and has the link for itself until 6 s.
    assert ends(least, "down") == {0: pytest.approx(2.0), 1: pytest.approx(1.0)}
    assert ends(least, "up") == {0: pytest.approx(5.0), 1: pytest.approx(6.0)}
    assert unfair(least) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("protocol", [{}, {"over_select": 1.0, "late": "partial", "deadline": 9.0}])
def test_the_audit_follows_each_allocation(run, kind, protocol):
    finished = run(
        rates=(8e6, 4e6, 3e6, 9e6, 2e6), server=10e6, latency=0.013, rounds=3, protocol=protocol, bandwidth=kind,
        devices=[device(flops) for flops in (1e9, 2e9, 0.7e9, 0.3e9, 5e9)],
    )  # fmt: skip
    assert unfair(finished) == []
    if kind != "proportional":  # all updates have the same bytes
        finished.setup.__dict__["bandwidth"] = None
        assert unfair(finished), "equal shares would have given other rates"


def test_parts_sent_early_and_repeated_attempts_are_allotted_too(run):
    for kind in KINDS:
        early = run(
            {"method": "fedadc", "overlap": True}, rates=(8e6, 4e6, 5e6), server=6e6, rounds=4, cohort=2, bandwidth=kind
        )
        assert early.of("transfer_start", item="prefetch")
        assert unfair(early) == []
        broken = run(
            rates=(8e6, 4e6, 2e6), server=6e6, rounds=2, bandwidth=kind, timeouts={"transfer": 3.0, "retries": 4}
        )
        assert broken.of("transfer_break")
        assert unfair(broken) == []


def test_an_outlook_leaves_out_an_uplink_that_is_down(run):
    outage = {"kind": "outage", "link": ["client/0", "internet"], "at": 0.0, "duration": 2.5}
    finished = run(rates=(8e6, 8e6), server=8e6, rounds=1, bandwidth="least_makespan", failures=[outage])
    (start,) = finished.of("transfer_start", item="down", client=0)
    assert math.isfinite(start.facts["outlook"]["after"])
    assert unfair(finished) == []


class Wrong(BandwidthSpec):
    """Answers wrongly."""

    answer: ClassVar[object] = ([0], [1])

    def order(self, transfers):
        return self.answer


def test_a_wrong_answer_names_the_method_and_the_part(run, monkeypatch):
    monkeypatch.setitem(ALLOCATIONS._parts, "wrong", Wrong)
    world = {"rates": (8e6, 8e6), "server": 8e6, "rounds": 1, "bandwidth": "wrong"}
    fault = run(**world).outcome.fault
    assert isinstance(fault, PartFault)
    assert str(fault).startswith("method 'method', round 1, bandwidth allocation: ")
    assert "it returned ([0], [1])" in str(fault)
    monkeypatch.setattr(Wrong, "answer", Order(np.zeros(2, int), np.ones(2)))
    assert unfair(run(**world)) == []


ASKED_RATES = [8e6, 8e6, 8e6, 8e6]
ALL = {"kind": "power_of_choice", "candidates": 2}
FORWARD = 1 / 3


def test_candidates_download_and_evaluate_before_the_round_and_the_chosen_download_once(run):
    result = run(rates=ASKED_RATES, cohort=2, rounds=1, selector=ALL)
    assert result.learner.asked == [(0, [0, 1, 2, 3], None)]
    assert [job.client for job in result.learner.aggregated[0]] == [2, 3]  # their loss is their number
    assert result.outcome.seconds == pytest.approx(1 + FORWARD + 2 + 1)
    spent = result.outcome.spent
    assert (spent["bytes_down"], spent["bytes_up"]) == (4e6, 2e6)
    assert (spent["bytes_useful"], spent["bytes_prefetched_in_vain"]) == (4e6, 2e6)
    # Two steps of 1 GFLOP for each of two clients; four forward passes.
    assert spent["flops"] == pytest.approx(2 * 2e9 + 4 * 2e9 / 6)
    # 1 W idle, 5 W computing, 2 W and 1 J/MB for the radio: downloads, forward passes, training, uploads.
    assert spent["joules"] == pytest.approx(4 * (1 + 2 + 1) + 4 * 5 * FORWARD + 2 * 5 * 2 + 2 * (1 + 2 + 1))
    assert spent["exposed_seconds"] == pytest.approx(2)


def test_fewer_images_take_less_time(run):
    result = run(rates=ASKED_RATES, cohort=2, rounds=2, selector={**ALL, "images": 4})
    assert result.learner.asked == [(version, [0, 1, 2, 3], 4) for version in (0, 1)]
    assert result.outcome.rows[0].seconds == pytest.approx(1 + FORWARD * 0.4 + 2 + 1)
    assert [event.value for event in result.of("forward")] == [4.0] * 8


def test_a_deadline_counts_from_the_end_of_the_asking(run):
    for deadline, aggregated in ((3.1, 2), (2.9, 0)):
        result = run(rates=ASKED_RATES, cohort=2, rounds=1, selector=ALL, protocol={"deadline": deadline})
        assert result.outcome.rows[0].aggregated == aggregated
        assert result.outcome.seconds == pytest.approx(1 + FORWARD + min(deadline, 3))


def test_a_client_that_crashes_meanwhile_does_not_hold_up_the_others(run):
    crash = {"kind": "crash", "client": 0, "at": 0.5}
    result = run(rates=[4e6, 8e6, 8e6, 8e6], cohort=2, rounds=1, selector=ALL, failures=[crash])
    assert result.outcome.seconds == pytest.approx(1 + FORWARD + 2 + 1)
    assert [event.client for event in result.of("forward")] == [1, 2, 3]


def test_a_client_without_enough_memory_is_not_asked_to_compute(run):
    devices = [device(memory=1e6), *[device()] * 3]
    result = run(rates=ASKED_RATES, cohort=2, rounds=1, selector=ALL, devices=devices)
    assert [event.client for event in result.of("forward")] == [1, 2, 3]


def test_a_run_that_ends_while_clients_are_asked_cancels_their_downloads(run):
    result = run(rates=ASKED_RATES, cohort=2, rounds=1, selector=ALL, budgets={"seconds": 0.5})
    assert result.outcome.reason == "seconds"
    assert result.outcome.spent["bytes_down"] == pytest.approx(4 * 5e5)
    assert len(result.of("lost", item="prefetched_in_vain")) == 4


def test_batteries_and_availability_are_facts_of_the_world(run, monkeypatch):
    # Download and upload: 1 W idle, 2 W and 1 J for the radio, 1 s each; 2 s of computing at 5 W: 18 J of 100 J.
    phone = DeviceProfile.model_validate(
        {**device().model_dump(), "name": "phone", "battery": {"capacity": 100.0, "start": 0.5}}
    )
    seen = []
    pick = UniformSelector.pick

    def watching(self, round, available, cohort, facts):
        charge = facts.charge(available)
        seen.append((charge.level.tolist(), charge.used.tolist(), facts.availability(available, 1, 2).tolist()))
        return pick(self, round, available, cohort, facts)

    monkeypatch.setattr(UniformSelector, "pick", watching)
    run(rates=[8e6, 8e6], rounds=2, devices=[phone, device()])
    assert seen[0] == ([0.5, 1.0], [pytest.approx(0.18), 0.0], [1.0, 1.0])
    assert seen[1] == ([pytest.approx(0.5 - 0.18), 1.0], [pytest.approx(0.18), 0.0], [1.0, 1.0])
