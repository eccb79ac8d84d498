"""The framework's own time in a round: processes that start, messages that wait to be fetched, serialisation."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from edgefl.errors import nearest
from edgefl.fleet import DeviceProfile
from edgefl.options import Options
from edgefl.units import Seconds

FRAMEWORKS = {"flower": {"start": 14.5, "wait": 13.4}, "flower-grpc": {"start": 0.2}}
"""flower: a process for each message (1.1x, SuperNode); flower-grpc: one process for all rounds (`start_client`)."""


class RoundOverhead(Options):
    """What a participation takes in addition to its transfers and its training, before it trains and before it sends.

    The client is idle in this time, and its radio sleeps.
    """

    start: Seconds = Field(default=0.0, description="to start a process and to load its data, on a core of speed 1")
    wait: Seconds = Field(default=0.0, description="until a message is fetched, on any device")
    per_megabyte: Seconds = Field(
        default=0.0, description="to serialise 10^6 bytes, in each direction, on a core of speed 1"
    )

    def before_training(self, device: DeviceProfile, received: float) -> float:
        """Seconds on a device after it has received so many bytes."""
        return self.wait + (self.start + self.per_megabyte * received / 1e6) / device.core_speed

    def before_sending(self, device: DeviceProfile, sent: float) -> float:
        return self.per_megabyte * sent / 1e6 / device.core_speed


def _of_framework(value: Any) -> Any:
    """A mapping with a ``kind`` has the figures of that framework, except those that it gives."""
    if value == "none":
        return {}
    if not isinstance(value, dict) or "kind" not in value:
        return value
    given = {name: figure for name, figure in value.items() if name != "kind"}
    if value["kind"] not in FRAMEWORKS:
        raise ValueError(f"unknown kind; {nearest(str(value['kind']), FRAMEWORKS)}")
    return {**FRAMEWORKS[value["kind"]], **given}


AnyOverhead = Annotated[RoundOverhead, BeforeValidator(_of_framework)]
"""``round_overhead:`` of a scenario: ``none``, ``{kind: flower}``, or the seconds."""
