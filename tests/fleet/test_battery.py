"""Batteries and energy."""

import math

import numpy as np
import pytest
from pydantic import ValidationError

from edgefl.fleet import compute_joules, idle_joules, load_profile, transfer_joules
from edgefl.fleet.battery import Battery, Charges

ONE = np.zeros(1, np.int32)


def test_what_batteries_start_with_is_drawn_evenly_and_by_the_seed_alone():
    batteries = [Battery(capacity=100.0, start={"low": 0.2, "high": 0.6}), None]
    group = np.arange(20_000, dtype=np.int32) % 2
    charges = Charges(batteries, group, seed=3)
    mine = charges.joules[group == 0]
    assert (mine.min(), mine.mean(), mine.max()) == pytest.approx((20, 40, 60), abs=0.5)
    assert (charges.joules == Charges(batteries, group, seed=3).joules).all()
    assert np.isinf(charges.joules[group == 1]).all()
    assert [charges.has(0), charges.has(1)] == [True, False]


def test_a_battery_charges_while_away_and_never_above_its_capacity():
    charges = Charges([Battery(capacity=100.0, start=0.5, charging=2.0)], ONE, seed=0)
    charges.enter(0, 10.0)
    assert charges.joules[0] == pytest.approx(70)
    charges.draw(0, 45.0, 11.0)
    charges.leave(0, 12.0)
    charges.leave(0, 13.0)  # leaving twice does not begin anew
    charges.enter(0, 20.0)
    assert charges.joules[0] == pytest.approx(25 + 16)
    charges.leave(0, 20.0)
    charges.enter(0, 1000.0)
    assert charges.joules[0] == 100


def test_a_battery_without_charging_stays_empty():
    charges = Charges([Battery(capacity=100.0)], ONE, seed=0)
    charges.enter(0, 0.0)
    charges.draw(0, 100.0, 1.0)
    charges.run_empty(0)
    charges.leave(0, 5.0)
    assert not charges.enough(1e9)[0]
    assert charges.next_enough(5.0) == math.inf


def test_asking_for_one_client_and_for_the_fleet_agree():
    charges = Charges([Battery(capacity=100.0, start=0.5, charging=2.0, resume=0.6)], np.zeros(3, np.int32), seed=0)
    for client in (0, 1):
        charges.enter(client, 1.0)
        charges.draw(client, 40.0 + 20 * client, 2.0)
    charges.run_empty(1)
    for client in (0, 1):
        charges.leave(client, 2.0)
    for now in (2.0, 20.0, 31.9, 32.0, 100.0):
        assert [charges.has_enough(client, now) for client in range(3)] == charges.enough(now).tolist()


@pytest.mark.parametrize("wrong", [{"capacity": 0}, {"start": 1.2}, {"start": {"low": 1, "high": 0.5}}, {"resume": 0}])
def test_impossible_batteries_are_refused(wrong):
    with pytest.raises(ValidationError):
        Battery(**{"capacity": "19 Wh", **wrong})


def test_computing_and_waiting_are_watts_times_seconds(board):
    assert compute_joules(board, 10) == pytest.approx(60, rel=1e-12)
    assert idle_joules(board, 10) == pytest.approx(20, rel=1e-12)
    assert [idle_joules(board, 10, bound=bound) for bound in ("low", "high")] == [10, 30]


def test_a_transfer_is_its_active_seconds_and_its_megabytes(board):
    assert transfer_joules(board, "down", 4, 20e6) == pytest.approx(0.5 * 4 + 0.1 * 20, rel=1e-12)
    assert transfer_joules(board, "up", 4, 20e6) == pytest.approx(1 * 4 + 0.6 * 20, rel=1e-12)
    assert transfer_joules(board, "up", 4, 20e6, bound="high") == pytest.approx(1 * 4 + 0.9 * 20, rel=1e-12)


def test_lte_on_a_phone_costs_what_the_fit_on_measured_logs_says():
    assert transfer_joules(load_profile("phone-flagship"), "up", 10, 1e6) == pytest.approx(1.7 * 10 + 0.26)
    # b = 11.5 and 76.7 mW per Mbit/s down and up, that is 0.092 and 0.61 J per megabyte
    profile = load_profile("phone-mid-range")
    per_megabyte = [transfer_joules(profile, direction, 0, 1e6) for direction in ("down", "up")]
    assert np.allclose(per_megabyte, [8 * 0.0115, 8 * 0.0767], rtol=0.01)
