"""Measure this machine under a CPU quota that stands for a slower device."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from edgefl.cpu_quota import limited, period_seconds
from edgefl.errors import UserError
from edgefl.profiling.measure_device import main
from edgefl.profiling.measure_device.case import Case
from edgefl.profiling.measure_device.timing import clock_for

PERIODS = 4
"""How many periods of the quota a timed group of runs lasts at least."""


def measurement_under_quota(
    processors: float, seconds: float, say: Callable[[str], None], wanted: Mapping[str, Case]
) -> dict[str, Any]:
    """What :func:`~edgefl.profiling.measure_device.main.measurement` returns, measured by one thread under a quota.

    A step shorter than the quota's period runs at full speed or waits for the rest of the period, so its duration by
    the clock says little. Its time on the processor is exact; it is multiplied by the real seconds of the whole
    measurement for one second on the processor. Runs are timed in groups that last several periods: after each wait
    the caches are cold, which a single short run may not meet.

    Args:
        processors: the quota, in processors.
        seconds: approximately how long it may take.
        say: prints progress.
        wanted: the cases to time.

    Raises:
        UserError: a quota cannot be set here, or this system cannot measure time on the processor.
    """
    if clock_for(1) is not time.process_time:
        raise UserError("a measurement under a quota needs an exact clock of the processor's time", field="--cpu-quota")
    with limited(processors):
        began, used = time.perf_counter(), time.process_time()
        found = main.measurement(seconds, 1, say, dict(wanted), PERIODS * processors * period_seconds(processors))
        stretch = (time.perf_counter() - began) / (time.process_time() - used)
    say(f"{stretch:.4g} seconds for one second on the processor; the quota alone gives {1 / processors:.4g}.")
    for timing in found["cases"].values():
        timing["seconds"] *= stretch
    found["machine"]["peak_flops_per_second"] /= stretch
    return found
