"""A measurement under a quota gives real seconds: those on the processor, stretched as the quota stretched them."""

import contextlib
import time

import pytest

from edgefl.errors import UserError
from edgefl.profiling import measurement as measuring
from edgefl.profiling.measurement import measurement_under_quota


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

    monkeypatch.setattr(measuring, "limited", limited)
    monkeypatch.setattr(measuring.main, "measurement", measurement)
    real, used = iter([10.0, 18.0]), iter([1.0, 3.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(real))
    clock = lambda: next(used)  # noqa: E731
    monkeypatch.setattr(measuring, "clock_for", lambda threads: clock)
    monkeypatch.setattr(time, "process_time", clock)
    found = measurement_under_quota(0.3, 1.0, silent, {})
    # Eight real seconds for two on the processor.
    assert found["cases"]["a"]["seconds"] == 4 * 0.5
    assert found["machine"]["peak_flops_per_second"] == 8e9 / 4
    assert quotas == [0.3]


def test_a_clock_that_is_too_coarse_is_refused(monkeypatch):
    monkeypatch.setattr(measuring, "clock_for", lambda threads: time.perf_counter)
    with pytest.raises(UserError, match="exact clock"):
        measurement_under_quota(0.3, 1.0, silent, {})
