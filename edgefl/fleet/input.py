"""The input pipeline of a client: reading, decoding and transforming samples on cores of the processor."""

from pydantic import Field

from edgefl.fleet.profile import DeviceProfile
from edgefl.options import Options
from edgefl.units import Latency

HANDOVER = 9e-3
"""Seconds to take a batch from a worker on a core of speed 1: 1.4 ms were measured on two x86 cores of speed 6.4."""


class InputPipeline(Options):
    """How a client makes batches: in the training loop (no workers), or in other processes while it trains."""

    seconds: Latency = Field(description="seconds to read and transform a sample and to collate it, on one core")
    workers: int = Field(default=0, ge=0, le=1024, description="processes that make batches; 0: the loop itself does")
    core: float = Field(
        default=1.0, gt=0, description="the core_speed of the device that `seconds` are of; 1: a Raspberry Pi 4"
    )

    def reading(self, profile: DeviceProfile, batch: int) -> float:
        """The seconds that one core of this device needs for ``batch`` samples."""
        return batch * self.seconds * self.core / profile.core_speed

    def waiting(self, profile: DeviceProfile, step: float, batch: int) -> float:
        """The seconds that a step on ``batch`` samples takes longer than its ``step`` seconds on this device.

        Workers read at the same time, but share the device's cores with training if it trains on them.

        >>> from edgefl.fleet import load_profile
        >>> board, pipeline = load_profile("raspberry-pi-4"), InputPipeline(seconds=1e-3, workers=2)
        >>> [round(pipeline.waiting(board, step, 32), 6) for step in (0.05, 0.01)]
        [0.017, 0.017]
        """
        reading = self.reading(profile, batch)
        if not self.workers:
            return reading
        cores = profile.compute.cores
        shared = 0.0 if cores is None else reading / cores
        return max(shared + HANDOVER / profile.core_speed, reading / self.workers - step)
