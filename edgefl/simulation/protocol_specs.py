"""The options of ``protocol:``: how rounds run, which updates they aggregate, and the weight of stale ones."""

import math
from collections import deque
from collections.abc import Sequence
from statistics import median
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, Tag, model_validator

from edgefl.methods.fits import Need
from edgefl.methods.parts.server import Weighting
from edgefl.options import Options, kind_or, of_kind
from edgefl.units import ShortSeconds

READS = frozenset({"compute_seconds", "transfer_seconds"})
"""What an adaptive deadline depends on."""


class AdaptiveDeadline(Options, allow_inf_nan=False):
    """The median of the durations in the last rounds, plus a multiple of their median absolute deviation (MAD).

    A duration is the time from a round's start to the arrival of a client's update, or until the client was cut off.
    So it is too short for clients that were cut off, but the median is right as long as less than half of them were.

    1.4826 MAD estimate the standard deviation of a normal distribution; the default is three of these, beyond which a
    value counts as an outlier (Leys et al., "Detecting outliers", J. Exp. Soc. Psychol. 49, 2013).

    >>> AdaptiveDeadline(kind="adaptive", deviations=2).of([1.0, 2.0, 3.0, 5.0, 9.0])
    7.0
    """

    kind: Literal["adaptive"] = Field(description="adaptive: the median of earlier durations and a multiple of the MAD")
    deviations: float = Field(
        4.4478, ge=0, description="multiple of the median absolute deviation that is added to the median"
    )
    rounds: int = Field(10, ge=1, description="number of latest rounds whose durations count")
    first: Annotated[ShortSeconds, Field(gt=0)] | None = Field(
        None, description="deadline of the rounds before the first known duration; null: none"
    )

    def of(self, durations: Sequence[float]) -> float:
        """The seconds until the deadline after these durations, of which there is at least one."""
        middle = median(durations)
        return middle + self.deviations * median(abs(each - middle) for each in durations)


DeadlineSpec = Annotated[
    Annotated[ShortSeconds, Field(gt=0), Tag("fixed")] | Annotated[AdaptiveDeadline, Tag("adaptive")],
    kind_or("adaptive", "fixed"),
]
"""``protocol.deadline``: seconds, or a mapping with ``kind``."""


class Deadlines:
    """The deadline of each round, in turn."""

    def __init__(self, spec: float | AdaptiveDeadline | None) -> None:
        self.adaptive = isinstance(spec, AdaptiveDeadline)
        self._spec = spec
        self._seen: deque[Sequence[float]] = deque(maxlen=spec.rounds if isinstance(spec, AdaptiveDeadline) else 0)

    def seconds(self) -> float | None:
        """Seconds from the start of the next round to its deadline; None for none."""
        if not isinstance(self._spec, AdaptiveDeadline):
            return self._spec
        durations = [each for round in self._seen for each in round]
        return self._spec.of(durations) if durations else self._spec.first

    def round_closed(self, durations: Sequence[float]) -> None:
        """The durations that were seen in a round; a round without any does not count."""
        if durations:
            self._seen.append(durations)


class ConstantStaleness(Options):
    """s(τ) = 1: an old update has the weight of a new one."""

    kind: Literal["constant"] = Field(default="constant", description="constant: the same weight for all updates")

    def factor(self, staleness: int) -> float:
        return 1.0


class PolynomialStaleness(Options, allow_inf_nan=False):
    """s(τ) = (1 + τ)^-a (FedAsync's polynomial; a = 1/2 is FedBuff's).

    >>> PolynomialStaleness().factor(3)
    0.5
    """

    kind: Literal["polynomial"] = Field(default="polynomial", description="polynomial: (1 + τ)^-exponent")
    exponent: float = Field(default=0.5, ge=0, description="a")

    def factor(self, staleness: int) -> float:
        return float((1 + staleness) ** -self.exponent)


class HingeStaleness(Options, allow_inf_nan=False):
    """s(τ) = 1 up to ``grace`` aggregations, 1 / (slope · (τ - grace) + 1) beyond (Xie et al. 2019, Sec. 5.2).

    >>> HingeStaleness().factor(4), HingeStaleness(slope=1.0).factor(5)
    (1.0, 0.5)
    """

    kind: Literal["hinge"] = Field(default="hinge", description="hinge: 1 up to grace, 1 / (slope · (τ - grace) + 1)")
    slope: float = Field(default=10.0, gt=0, description="how fast the factor falls beyond the grace")
    grace: int = Field(default=4, ge=0, description="age in aggregations up to which an update has its full weight")

    def factor(self, staleness: int) -> float:
        return 1.0 if staleness <= self.grace else 1 / (self.slope * (staleness - self.grace) + 1)


Staleness = Annotated[
    Annotated[ConstantStaleness, Tag("constant")]
    | Annotated[PolynomialStaleness, Tag("polynomial")]
    | Annotated[HingeStaleness, Tag("hinge")],
    kind_or("polynomial"),
    BeforeValidator(
        of_kind,
        json_schema_input_type=Literal["constant", "polynomial", "hinge"]
        | ConstantStaleness
        | PolynomialStaleness
        | HingeStaleness,
    ),
]
"""The weight of an update that was trained from a model τ aggregations ago."""


class ProtocolOptions(Options, allow_inf_nan=False):
    """The options of every protocol."""

    needs: ClassVar[frozenset[Need]] = frozenset()

    kind: str
    retries: int = Field(
        default=0,
        ge=0,
        description="how many times a client restarts its job after an accident (`fleet.dropout`), with another "
        "download; 0: it leaves the round",
    )

    def gathered(self, cohort: int) -> int:
        """K: the number of updates for one aggregation."""
        return cohort

    @property
    def gathered_by(self) -> str:
        """The field of a scenario that sets :meth:`gathered`."""
        return "training.cohort"


class RoundsSpec(ProtocolOptions):
    """The common options of protocols with rounds: when a round closes, and how late clients are handled."""

    deadline: DeadlineSpec | None = Field(
        default=None,
        description="seconds from the start of a round to its end if clients are still missing; with averaging cells: "
        "to the end of each cell's round; a mapping: from the durations of earlier rounds; null: none",
    )
    over_select: float = Field(
        default=1.0,
        ge=1,
        description="pick this multiple of the cohort, end the round when `training.cohort` clients have returned; "
        "with averaging cells: each closes when its share of them has",
    )

    late: Literal["drop", "partial"] = Field(
        default="drop",
        description="drop: the update of a client that misses the deadline is discarded; partial: the client takes "
        "only as many local steps as leave time for its upload",
    )
    reserve: float = Field(
        default=1.0,
        ge=0,
        description="partial only: seconds reserved for the upload, in multiples of its duration alone on its path",
    )

    @model_validator(mode="after")
    def _partial_needs_a_deadline(self) -> Self:
        if self.late == "partial" and self.deadline is None:
            raise ValueError("late 'partial' reduces work to meet a deadline; expected a deadline, found null")
        return self

    def takes(self, weighting: Weighting = "uniform") -> dict[Need, str]:
        """What these rounds take from parts of a scenario; ``weighting`` is the method's."""
        return {} if self.deadline is not None else {"deadline": "there is none; expected protocol.deadline"}

    def picked(self, cohort: int) -> int:
        """The number of clients to pick so that ``cohort`` of them close the round."""
        # 1.1 * 10 is 11.000000000000002: without the rounding it would pick 12.
        return math.ceil(round(self.over_select * cohort, 9))

    def enough(self, picked: int) -> int:
        """The number of the clients picked in a cell that must return to close it."""
        return math.ceil(round(picked / self.over_select, 9))


class SynchronousSpec(RoundsSpec):
    """One round after another.

    A synchronous round ends when every picked client has returned or dropped out; with a deadline, not later than the
    deadline; with over-selection, as soon as ``cohort`` clients have returned.

    >>> SynchronousSpec(over_select=1.3).picked(cohort=10)
    13
    """

    kind: Literal["synchronous"] = Field(default="synchronous", description="synchronous: one round after another")


class AsynchronousSpec(ProtocolOptions):
    """Clients start and finish at any time; the server aggregates whenever it has ``buffer`` updates.

    FedBuff (Nguyen et al. 2022) is ``buffer: 10, concurrency: 100`` with polynomial staleness; FedAsync (Xie et al.
    2019) is ``buffer: 1, mix: models, mixing: 0.6``.
    """

    kind: Literal["asynchronous"] = Field(description="asynchronous: aggregate as updates arrive")
    buffer: int | None = Field(
        default=None, ge=1, description="updates for one aggregation, K; null: `training.cohort`"
    )
    concurrency: int | None = Field(
        default=None, ge=1, description="clients active at any time; null: `training.cohort`"
    )
    staleness: Staleness = Field(
        default=PolynomialStaleness(), description="s(τ): the weight of an update that is τ aggregations old"
    )
    mixing: float = Field(default=1.0, gt=0, le=1, description="factor α on every update, in addition to s(τ)")
    mix: Literal["deltas", "models"] = Field(
        default="deltas",
        description="deltas: add the client's change to the model that it received (FedBuff); "
        "models: move towards the client's model (FedAsync)",
    )

    ahead: int = Field(
        default=1, ge=1, description="methods with `overlap: true` only: number of waiting clients that prefetch parts"
    )

    def takes(self, weighting: Weighting = "uniform") -> dict[Need, str]:
        """What clients that start and finish at any time take from parts of a scenario."""
        none = "asynchronous clients begin and end at any time"
        takes: dict[Need, str] = {"rounds": f"{none}; expected protocol.kind: synchronous", "deadline": none}
        if self.mix == "models":
            takes["own start"] = "protocol.mix is models; expected mix: deltas"
        return takes

    def gathered(self, cohort: int) -> int:
        return cohort if self.buffer is None else self.buffer

    @property
    def gathered_by(self) -> str:
        return super().gathered_by if self.buffer is None else "protocol.buffer"

    def under_way(self, cohort: int) -> int:
        return cohort if self.concurrency is None else self.concurrency

    def factor(self, staleness: int) -> float:
        return self.mixing * self.staleness.factor(staleness)


class HierarchicalSpec(RoundsSpec):
    """Synchronous rounds in which each cell averages its clients' updates and sends the server one.

    The mean of the cells' means, each with its clients' weights, is the mean over all clients. Each cell closes
    separately: when all its clients have returned or dropped out, at the deadline, or when its share of an
    over-selected cohort has returned. The round ends when every cell's mean has reached the server.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({"cells"})

    kind: Literal["hierarchical"] = Field(description="hierarchical: cells average before the server does")

    def takes(self, weighting: Weighting = "uniform") -> dict[Need, str]:
        other = "expected protocol.kind: synchronous or asynchronous"
        takes = super().takes(weighting)
        takes["each update"] = f"in hierarchical rounds the cells send their clients' mean; {other}"
        takes["rounds"] = "in hierarchical rounds each cell has its own; expected protocol.kind: synchronous"
        takes["server's links"] = f"in hierarchical rounds cells send to clients on their own; {other}"
        if weighting == "samples":
            takes["plain sum"] = "cells send a mean weighted by samples; expected weighting: uniform"
        return takes


ProtocolSpec = Annotated[
    Annotated[SynchronousSpec, Tag("synchronous")]
    | Annotated[AsynchronousSpec, Tag("asynchronous")]
    | Annotated[HierarchicalSpec, Tag("hierarchical")],
    kind_or("synchronous"),
]
"""``protocol:`` of a scenario; without a kind, a synchronous one."""
