"""The content of ``emulation.json``: how a run was measured, and whether the machine was quiet enough for it."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterator
from typing import TYPE_CHECKING

from edgefl.record.emulation import Emulation, Load
from edgefl.simulation.setup import Setup

if TYPE_CHECKING:
    from edgefl.emulation.testbed import Testbed

MOST_PROCESSORS = 0.85
"""Above this share of the processors' time, packets wait for processes."""

MOST_OF_A_ROUND = 0.01
"""Delays of the machine up to this share of a round are accepted."""

LEAST_OF_A_QUOTA = 0.95
"""For processes that train."""


def processor_seconds() -> tuple[float, float]:
    """The processors' ticks: those of work, and all."""
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [int(each) for each in file.readline().split()[1:9]]
    idle = ticks[3] + ticks[4]
    return float(sum(ticks) - idle), float(sum(ticks))


def starved(used: float, granted: float) -> Iterator[str]:
    """A sentence if processes got less of the processors than their quotas; none if nothing was trained.

    >>> list(starved(9.0, 10.0))[0]
    'local training got 90 % of the processor time of its quotas; expected at least 95 %: end other programs'
    """
    if used < LEAST_OF_A_QUOTA * granted:
        yield (
            f"local training got {100 * used / granted:.0f} % of the processor time of its quotas; expected at least "
            f"{100 * LEAST_OF_A_QUOTA:g} %: end other programs"
        )


def doubts(load: Load, *, seconds: float, rounds: int, dilation: float) -> Iterator[str]:
    """Sentences about what makes the seconds of a run doubtful; none if nothing does.

    >>> load = Load(cpu=0.97, late_seconds_median=0.0, late_seconds_worst=0.2, paused_seconds=0, paused_while_sending=0)
    >>> for doubt in doubts(load, seconds=30.0, rounds=3, dilation=2.0):
    ...     print(doubt)
    the processors were busy for 97 % of the time; expected at most 85 %: end other programs, or use --dilate 4
    an event was 0.2 s late, 2.0 % of a round; expected at most 1 %: end other programs, or use --dilate 4
    """
    more = f"end other programs, or use --dilate {2 * dilation:g}"
    if load.cpu > MOST_PROCESSORS:
        limit = f"{100 * MOST_PROCESSORS:.0f} %"
        yield f"the processors were busy for {100 * load.cpu:.0f} % of the time; expected at most {limit}: {more}"
    round = seconds / max(rounds, 1)
    limit = f"expected at most {100 * MOST_OF_A_ROUND:g} %"
    if load.late_seconds_worst > MOST_OF_A_ROUND * round:
        share = f"{100 * load.late_seconds_worst / round:.1f} % of a round" if round else "in a run without rounds"
        yield f"an event was {load.late_seconds_worst:.2g} s late, {share}; {limit}: {more}"
    if load.paused_while_sending > MOST_OF_A_ROUND * seconds:
        yield (
            f"the clock stood still for {load.paused_while_sending:.2g} s in which transfers went on, for example to"
            f" train jobs that the simulation does not have; {limit} of {seconds:.3g} s"
        )


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
        *doubts(load, seconds=clock.now, rounds=testbed.rounds, dilation=clock.dilation),
        *testbed.doubts_of_training(),
    ]
    return Emulation(
        dilation=clock.dilation,
        compute="real" if testbed.trains else "paced",
        queue="fair" if setup.transport.queue is None else "fifo",
        trust=tuple(trust),
        wire_bytes=testbed.wire_bytes(),
        load=load,
        machine={"processors": os.cpu_count(), "kernel": platform.release()},
    )
