"""A measurement under a quota gives real seconds: those on the processor, stretched as the quota stretched them."""

import contextlib
import time

import pytest

from edgefl.errors import UserError
from edgefl.fleet import load_profile
from edgefl.fleet.assignment import Sample, sampled_profiles
from edgefl.fleet.profile import slower
from edgefl.profiling import under_quota
from edgefl.profiling.under_quota import measurement_under_quota
from edgefl.randomness import generator


def silent(text):
    pass


def test_times_on_the_processor_become_real_seconds(monkeypatch):
    quotas = []

    @contextlib.contextmanager
    def limited(processors):
        quotas.append(processors)
        yield

    def measurement(seconds, threads, say, wanted, least_block):
        assert threads == 1
        assert least_block == pytest.approx(4 * 0.3 * 0.05)  # four periods of 50 ms, each with 15 ms of running
        return {"cases": {"a": {"seconds": 0.5}}, "machine": {"peak_flops_per_second": 8e9}}

    monkeypatch.setattr(under_quota, "limited", limited)
    monkeypatch.setattr(under_quota.main, "measurement", measurement)
    real, used = iter([10.0, 18.0]), iter([1.0, 3.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(real))
    clock = lambda: next(used)  # noqa: E731
    monkeypatch.setattr(under_quota, "clock_for", lambda threads: clock)
    monkeypatch.setattr(time, "process_time", clock)
    found = measurement_under_quota(0.3, 1.0, silent, {})
    # Eight real seconds for two on the processor.
    assert found["cases"]["a"]["seconds"] == 4 * 0.5
    assert found["machine"]["peak_flops_per_second"] == 8e9 / 4
    assert quotas == [0.3]


def test_a_clock_that_is_too_coarse_is_refused(monkeypatch):
    monkeypatch.setattr(under_quota, "clock_for", lambda threads: time.perf_counter)
    with pytest.raises(UserError, match="exact clock"):
        measurement_under_quota(0.3, 1.0, silent, {})


def with_quota(processors):
    profile = load_profile("raspberry-pi-4")
    return profile.model_copy(update={"compute": profile.compute.model_copy(update={"cpu_quota": processors})})


def test_a_device_of_half_the_speed_has_half_the_quota():
    assert slower(with_quota(0.5), 2).compute.cpu_quota == 0.25
    assert slower(load_profile("raspberry-pi-4"), 2).compute.cpu_quota is None


def test_sampled_devices_have_no_quota():
    drawn = sampled_profiles(with_quota(0.5), Sample(devices=2), generator(0, "sample"))
    assert [each.compute.cpu_quota for each in drawn] == [None, None]
