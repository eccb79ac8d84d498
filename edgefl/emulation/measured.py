"""The content of ``emulation.json``: how the seconds of a run were measured, and what the machine did meanwhile."""

from __future__ import annotations

import os
import platform
import statistics

from edgefl.emulation.testbed import Testbed
from edgefl.emulation.trust import doubts
from edgefl.record.emulation import Emulation, Load
from edgefl.simulation.setup import Setup


def measured(testbed: Testbed, setup: Setup) -> Emulation:
    """How a run's seconds were measured, at its end."""
    clock = testbed.real_clock
    late = [each / clock.dilation for each in clock.late] or [0.0]
    load = Load(
        cpu=testbed.busy,
        late_seconds_median=statistics.median(late),
        late_seconds_worst=max(late),
        paused_seconds=clock.paused / clock.dilation,
        paused_while_sending=clock.paused_while_sending / clock.dilation,
    )
    trust = [
        *doubts(load, seconds=testbed.measured_seconds, rounds=testbed.measured_rounds, dilation=clock.dilation),
        *testbed.doubts_of_training(),
    ]
    return Emulation(
        dilation=clock.dilation,
        compute="real" if testbed.trains else "paced",
        queue="fair" if setup.transport.queue is None else "fifo",
        trust=tuple(trust),
        wire_bytes=testbed.wire_bytes(),
        load=load,
        after_round=testbed.repeated_rounds,
        machine={"processors": os.cpu_count(), "kernel": platform.release()},
    )
