"""The figures of a plan, as plain values that become JSON."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from edgefl.fleet.figure import Bound
from edgefl.record.summary import BudgetKind

Part = Literal["download", "compute", "upload", "shared"]
"""What a closing client's time is spent on, and the part of its transfers that others' transfers cost it."""


class Range(NamedTuple):
    """A figure at the least, nominal and greatest values that the device profiles' uncertain figures allow."""

    low: float
    nominal: float
    high: float

    @staticmethod
    def of(figure: Callable[[Bound], float]) -> Range:
        """The figure at each of the three bounds.

        >>> Range.of({"low": 1.0, "nominal": 2.0, "high": 4.0}.__getitem__)
        Range(low=1.0, nominal=2.0, high=4.0)
        """
        return Range(figure("low"), figure("nominal"), figure("high"))


@dataclass(frozen=True)
class DevicePlan:
    """What one group of the fleet does for one method; seconds, bytes and joules are means over its participations.

    Attributes:
        device, link: the group's profile and link.
        clients: in the group; ``refused``: how many of them have not the memory for the job.
        why: why those cannot take part.
        peak_memory_bytes: of the job with the whole model received; ``training_memory_bytes``: what there is for it,
            that of the smallest device where the group's devices differ.
        participations: how often its clients took part in the planned rounds; where they never did, what follows is
            worked out for the whole model, and seconds and joules of transfers are unknown.
        compute_seconds, joules: for one participation, at the bounds of the profile's figures.
        download_seconds, upload_seconds: for one participation, beside everybody else's transfers.
        bytes_down, bytes_up: for one participation.
        closes: share of the rounds that one of its clients closed.
        lost: share of its participations that nothing came of, by fate.
    """

    device: str
    link: str
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
    """How far one budget reaches, had the run this one alone.

    Attributes:
        kind, limit: the budget.
        rounds: rounds that it pays for, at most the scenario's; ``seconds``: virtual time at the end of the last.
        lasts: it is not exhausted before the scenario's last round.
        foreseen: the planned rounds did not reach so far, so that their means were extended.
    """

    kind: BudgetKind
    limit: float
    rounds: int
    seconds: float
    lasts: bool
    foreseen: bool


@dataclass(frozen=True)
class MethodPlan:
    """What one method costs a round; means over the planned rounds up to the run's own end.

    Attributes:
        label: the method's.
        rounds: how many rounds the means are over.
        seconds, bytes_down, bytes_up, flops: a round's, of all its clients together; NaN seconds where no round ends.
        joules: a round's, at the bounds of the profiles' figures.
        participants, aggregated: clients a round that took part, and whose updates counted.
        holds_back: what holds rounds back, in words; ``None`` where no update arrives at all.
        in_vain: why no update arrives, or why rounds end before the last, in words.
        critical: shares of the closing client's time: ``download``, ``compute``, ``upload``, and of its transfers the
            share ``shared`` that they lasted longer because of others' (``None`` where links follow traces).
        budgets: how far each reaches.
        devices: one for each group of the fleet.
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
    holds_back: str | None
    in_vain: str | None
    critical: dict[Part, float | None]
    budgets: tuple[BudgetPlan, ...]
    devices: tuple[DevicePlan, ...]


@dataclass(frozen=True)
class Plan:
    """A scenario's plan.

    Attributes:
        scenario: its name.
        seed: whose fleet, cohorts and link draws.
        rounds: rounds of the world that were run for each method.
        methods: one for each method.
    """

    scenario: str
    seed: int
    rounds: int
    methods: tuple[MethodPlan, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; a range is a mapping of its bounds, and what is not known is ``None``."""
        return _plain(asdict(self))  # type: ignore[no-any-return]


def _plain(data: Any) -> Any:
    if isinstance(data, Range):
        return data._asdict()
    if isinstance(data, float) and not math.isfinite(data):
        return None
    if isinstance(data, dict):
        return {key: _plain(each) for key, each in data.items()}
    return [_plain(each) for each in data] if isinstance(data, list | tuple) else data
