"""The content of ``emulation.json``: how the seconds of a run were measured, and what the machine did meanwhile."""

from __future__ import annotations

import os
import platform
import statistics

from edgefl.emulation.testbed import Testbed
from edgefl.emulation.trust import doubts
from edgefl.record.emulation import Emulation, Load, WireBytes
from edgefl.simulation.setup import Setup


def processor_seconds() -> tuple[float, float]:
    """The seconds for which all processors of this machine have worked, and for which they could have."""
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [int(each) for each in file.readline().split()[1:9]]
    idle = ticks[3] + ticks[4]
    return float(sum(ticks) - idle), float(sum(ticks))


def measured(testbed: Testbed, setup: Setup, before: tuple[float, float]) -> Emulation:
    """How a run's seconds were measured; ``before`` are the processors' seconds at its start."""
    clock = testbed.real_clock
    after = processor_seconds()
    down = up = 0
    for (source, target), count in testbed.carried().items():
        if target.startswith("client/"):
            down += count
        if source.startswith("client/"):
            up += count
    late = [each / clock.dilation for each in clock.late] or [0.0]
    load = Load(
        cpu=min(1.0, (after[0] - before[0]) / max(after[1] - before[1], 1.0)),
        late_seconds_median=statistics.median(late),
        late_seconds_worst=max(late),
        paused_seconds=clock.paused / clock.dilation,
        paused_while_sending=clock.paused_while_sending / clock.dilation,
    )
    trust = [
        *doubts(load, seconds=clock.now, rounds=setup.rounds, dilation=clock.dilation),
        *testbed.doubts_of_training(),
    ]
    return Emulation(
        dilation=clock.dilation,
        compute="real" if testbed.trains else "paced",
        queue="fair" if setup.transport.queue is None else "fifo",
        trust=tuple(trust),
        wire_bytes=WireBytes(down=down, up=up),
        load=load,
        after_round=testbed.repeated_rounds,
        machine={"processors": os.cpu_count(), "kernel": platform.release()},
    )
