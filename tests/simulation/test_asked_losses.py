"""The cost of losses that a selector asks for before a round, worked out by hand.

A model takes 1 s over 8 Mbit/s, local training 2 s for twenty images, so a forward pass on the client's ten images
takes 2 s · 10 / (3 · 20) = 1/3 s.
"""

import pytest

from edgefl.fleet import DeviceProfile
from edgefl.scheduling.selection.uniform import UniformSelector

from .conftest import device

RATES = [8e6, 8e6, 8e6, 8e6]
ALL = {"kind": "power_of_choice", "candidates": 2}
FORWARD = 1 / 3


def test_candidates_download_and_evaluate_before_the_round_and_the_chosen_download_once(run):
    result = run(rates=RATES, cohort=2, rounds=1, selector=ALL)
    assert result.learner.asked == [(0, [0, 1, 2, 3], None)]
    assert [job.client for job in result.learner.aggregated[0]] == [2, 3]  # their loss is their number
    assert result.outcome.seconds == pytest.approx(1 + FORWARD + 2 + 1)
    spent = result.outcome.spent
    assert (spent.bytes_down, spent.bytes_up) == (4e6, 2e6)
    assert (spent.bytes_useful, spent.bytes_prefetched_in_vain) == (4e6, 2e6)
    # Two steps of 1 GFLOP for each of two clients; four forward passes.
    assert spent.flops == pytest.approx(2 * 2e9 + 4 * 2e9 / 6)
    # 1 W idle, 5 W computing, 2 W and 1 J/MB for the radio: downloads, forward passes, training, uploads.
    assert spent.joules == pytest.approx(4 * (1 + 2 + 1) + 4 * 5 * FORWARD + 2 * 5 * 2 + 2 * (1 + 2 + 1))
    assert spent.exposed_seconds == pytest.approx(2)


def test_fewer_images_take_less_time(run):
    result = run(rates=RATES, cohort=2, rounds=2, selector={**ALL, "images": 4})
    assert result.learner.asked == [(version, [0, 1, 2, 3], 4) for version in (0, 1)]
    assert result.outcome.rows[0].seconds == pytest.approx(1 + FORWARD * 0.4 + 2 + 1)
    assert [event.value for event in result.of("forward")] == [4.0] * 8


def test_a_deadline_counts_from_the_end_of_the_asking(run):
    for deadline, aggregated in ((3.1, 2), (2.9, 0)):
        result = run(rates=RATES, cohort=2, rounds=1, selector=ALL, protocol={"deadline": deadline})
        assert result.outcome.rows[0].aggregated == aggregated
        assert result.outcome.seconds == pytest.approx(1 + FORWARD + min(deadline, 3))


def test_a_client_that_crashes_meanwhile_does_not_hold_up_the_others(run):
    crash = {"kind": "crash", "client": 0, "at": 0.5}
    result = run(rates=[4e6, 8e6, 8e6, 8e6], cohort=2, rounds=1, selector=ALL, failures=[crash])
    assert result.outcome.seconds == pytest.approx(1 + FORWARD + 2 + 1)
    assert [event.client for event in result.of("forward")] == [1, 2, 3]


def test_a_client_without_enough_memory_is_not_asked_to_compute(run):
    devices = [device(memory=1e6), *[device()] * 3]
    result = run(rates=RATES, cohort=2, rounds=1, selector=ALL, devices=devices)
    assert [event.client for event in result.of("forward")] == [1, 2, 3]


def test_a_run_that_ends_while_clients_are_asked_cancels_their_downloads(run):
    result = run(rates=RATES, cohort=2, rounds=1, selector=ALL, budgets={"seconds": 0.5})
    assert result.outcome.reason == "seconds"
    assert result.outcome.spent.bytes_down == pytest.approx(4 * 5e5)
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
