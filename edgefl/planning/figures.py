"""The figures of a plan, as plain values that can be written as JSON."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from edgefl.fleet.figure import Bound
from edgefl.record.kinds import BudgetKind

Part = Literal["download", "compute", "upload", "shared"]
"""Parts of a closing client's time; ``shared`` is the share of its transfer time caused by other clients' transfers."""


class Range(NamedTuple):
    """A figure at the low, nominal and high bounds of the device profiles' uncertain figures."""

    low: float
    nominal: float
    high: float

    @staticmethod
    def of(figure: Callable[[Bound], float]) -> Range:
        """Return the figure at each of the three bounds.

        >>> Range.of({"low": 1.0, "nominal": 2.0, "high": 4.0}.__getitem__)
        Range(low=1.0, nominal=2.0, high=4.0)
        """
        return Range(figure("low"), figure("nominal"), figure("high"))


@dataclass(frozen=True)
class DevicePlan:
    """The plan of one group of the fleet for one method; seconds, bytes and joules are means over its participations.

    If its clients never participated in the planned rounds, these are computed for the whole model, and those of
    transfers are unknown. ``refused`` clients have too little memory for the job (``why``); ``training_memory_bytes``
    is what the group's smallest device has for it. ``closes`` is the share of the rounds that one of its clients
    closed, ``lost`` the shares of its participations whose updates were lost, by fate.
    """

    device: str
    link: str
    evidence: str
    clients: int
    refused: int
    why: str | None
    peak_memory_bytes: float
    training_memory_bytes: Range
    participations: int
    compute_seconds: Range
    download_seconds: float | None
    upload_seconds: float | None
    bytes_down: float | None
    bytes_up: float | None
    joules: Range | None
    closes: float
    lost: dict[str, float]


@dataclass(frozen=True)
class BudgetPlan:
    """How far one budget reaches if it is the only one of the run: to the end of ``rounds``, at most the scenario's.

    ``lasts``: it is not exhausted before the scenario's last round; ``foreseen``: extrapolated from the planned rounds.
    """

    kind: BudgetKind
    limit: float
    rounds: int
    seconds: float
    lasts: bool
    foreseen: bool


@dataclass(frozen=True)
class MethodPlan:
    """What one method costs per round, summed over clients: means over the planned rounds, up to the end of the run.

    ``breaks`` are broken attempts to transfer something, each with a wait of ``wait_seconds``; ``holds_back`` is what
    limits the rounds, and ``in_vain`` why no update arrives or the run stalls early. ``critical`` has shares of the
    closing client's time; ``shared`` is ``None`` for a topology from a file.
    """

    label: str
    rounds: int
    seconds: float
    bytes_down: float
    bytes_up: float
    flops: float
    joules: Range
    participants: float
    aggregated: float
    breaks: float
    wait_seconds: float
    holds_back: str | None
    in_vain: str | None
    critical: dict[Part, float | None]
    budgets: tuple[BudgetPlan, ...]
    devices: tuple[DevicePlan, ...]


@dataclass(frozen=True)
class Plan:
    """A scenario's plan.

    ``rounds`` were simulated for each method; ``queue_spread`` is the standard deviation of the logarithm of a
    transfer's share, where shares are drawn; ``advice`` says whether bfloat16 would pay when this machine trains.
    """

    scenario: str
    seed: int
    rounds: int
    methods: tuple[MethodPlan, ...]
    queue_spread: float | None = None
    advice: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; a range is a mapping of its bounds, and unknown figures are ``None``."""
        return _plain(asdict(self))  # type: ignore[no-any-return]


def _plain(data: Any) -> Any:
    if isinstance(data, Range):
        return data._asdict()
    if isinstance(data, float) and not math.isfinite(data):
        return None
    if isinstance(data, dict):
        return {key: _plain(each) for key, each in data.items()}
    return [_plain(each) for each in data] if isinstance(data, list | tuple) else data
