"""The fit against runs whose transport is known: simulations stand for the emulation."""

from __future__ import annotations

import pytest

from edgefl.emulation.calibration import calibrate
from edgefl.experiment import run
from edgefl.scenario import with_overrides
from edgefl.scenario.loading import check

from .campaign import scenarios


def simulated(scenario, out, *changes):
    return run(with_overrides(scenario, changes), out=out, train=False)


@pytest.mark.release
def test_the_spread_of_a_simulated_queue_comes_back(tmp_path):
    scenario = check(scenarios()["fifo-10"])
    measured = simulated(scenario, tmp_path / "measured", "network.transport.queue_spread=0.6")
    predicted = simulated(scenario, tmp_path / "predicted")
    assert calibrate(scenario, measured, predicted, tmp_path / "fits").spread == pytest.approx(0.6, rel=0.02)


def test_the_share_of_headers_and_the_round_trips_of_a_handshake_come_back(tmp_path):
    # Each transfer alone on its path: its seconds are latency, set-up and bytes over the rate.
    scenario = check({**scenarios()["star-20ms"], "methods": ["fedavg", "fedbr"]})
    scenario = with_overrides(scenario, ["training.cohort=1", "training.rounds=12"])
    predicted = simulated(scenario, tmp_path / "predicted")
    tcp = ("kind=tcp", "handshake=tcp", "initial_window=null", "header_bytes=120")
    measured = simulated(scenario, tmp_path / "measured", *(f"network.transport.{option}" for option in tcp))
    found = calibrate(scenario, measured, predicted, tmp_path / "fits")
    assert found.share == pytest.approx(0.92, rel=1e-6)
    # The predicted latency is a part of what the share divides.
    assert found.setup == pytest.approx(0.06 - 0.02 / 0.92, abs=1e-6)
