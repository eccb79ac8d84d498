"""The seconds of a device's phases."""

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.simulation.delivery import Delivery
from edgefl.simulation.participation import Phases


def passed(env, seconds):
    env.run(until=env.now + seconds)


def test_a_pause_before_a_phase_is_not_part_of_it():
    env = simpy.Environment()
    phases = Phases(env)
    passed(env, 4.0)
    phases.begin()
    passed(env, 1.0)
    assert phases.end() == 1.0


def test_only_completed_transfers_count_as_transfer_seconds():
    env = simpy.Environment()
    phases = Phases(env)
    passed(env, 2.0)
    assert phases.end_transfer() == 2.0  # download
    passed(env, 16.0)
    phases.end()  # computing
    passed(env, 4.0)
    assert phases.end_transfer() == 4.0  # upload
    assert phases.transfers == [(0.0, 2.0), (18.0, 22.0)]
    assert phases.transfer_seconds == 6.0


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)).map(lambda pair: tuple(sorted(pair))), max_size=8),
    st.floats(0, 1e6),
)
def test_the_seconds_before_and_after_a_moment_are_all_seconds(transfers, moment):
    phases = Phases(simpy.Environment())
    phases.transfers += transfers
    assert sum(phases.transfers_since(moment)) == pytest.approx(phases.transfer_seconds, rel=1e-9, abs=1e-6)


@pytest.mark.parametrize("failed", [True, False])
def test_a_function_is_called_when_a_delivery_has_failed_and_only_then(failed):
    env, calls = simpy.Environment(), []
    delivery = Delivery(env, "server", "client", None, 1)
    delivery.on_failure(lambda: calls.append(env.now))
    passed(env, 1.0)
    delivery.end(failed=failed)
    assert calls == []
    passed(env, 1.0)
    assert calls == ([1.0] if failed else [])
    delivery.on_failure(lambda: calls.append("again"))
    passed(env, 1.0)
    assert "again" not in calls
