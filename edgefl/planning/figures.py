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

    Attributes:
        device, link: the group's profile and link.
        evidence: what confirms the profile's seconds of a step, such as ``fitted, ±10 %``.
        clients: the number in the group; ``refused``: how many of them have too little memory for the job.
        why: why those cannot participate.
        peak_memory_bytes: of the job if the client receives the whole model; ``training_memory_bytes``: the memory
            available for it, of the smallest device if the group's devices differ.
        participations: how often its clients participated in the planned rounds; if they never did, the fields below
            are computed for the whole model, and seconds and joules of transfers are unknown.
        compute_seconds, joules: for one participation, at the bounds of the profile's figures.
        download_seconds, upload_seconds: for one participation, while the other clients transfer as well.
        bytes_down, bytes_up: for one participation.
        closes: share of the rounds that one of its clients closed.
        lost: share of its participations whose updates were lost, by fate.
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
    """How far one budget reaches if it is the only one of the run.

    Attributes:
        kind, limit: the budget.
        rounds: rounds that it allows, at most the scenario's; ``seconds``: virtual time at the end of the last one.
        lasts: whether it is not exhausted before the scenario's last round.
        foreseen: whether the figures are extrapolated from the means of the planned rounds.
    """

    kind: BudgetKind
    limit: float
    rounds: int
    seconds: float
    lasts: bool
    foreseen: bool


@dataclass(frozen=True)
class MethodPlan:
    """What one method costs per round: means over the planned rounds, up to the end of the run.

    Attributes:
        label: the method's label.
        rounds: the number of rounds that the means are over.
        seconds, bytes_down, bytes_up, flops: per round, summed over its clients; NaN seconds if no round ends.
        joules: per round, at the bounds of the profiles' figures.
        participants, aggregated: clients per round that participated, and whose updates were aggregated.
        breaks: attempts to transfer something that break per round.
        wait_seconds: the mean wait after such a break; 0 without one.
        holds_back: what limits the rounds, in words; ``None`` if no update arrives.
        in_vain: why no update arrives, or why the run stalls early, in words.
        critical: shares of the closing client's time: ``download``, ``compute``, ``upload``, and ``shared``, the
            share of its transfer time caused by other clients' transfers (``None`` for a topology from a file).
        budgets: how far each budget reaches.
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

    Attributes:
        scenario: its name.
        seed: the seed of the fleet, the cohorts and the link draws.
        rounds: the number of rounds simulated for each method.
        methods: one for each method.
        queue_spread: the standard deviation of the logarithm of a transfer's share, where shares are drawn.
        advice: whether bfloat16 would pay when this machine trains the scenario, in words.
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
