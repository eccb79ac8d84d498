"""The deadline of each round: fixed, or from the durations of earlier rounds."""

from collections import deque
from collections.abc import Sequence
from statistics import median
from typing import Annotated, Literal

from pydantic import Field, Tag

from edgefl.options import Options, kind_or
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
    deviations: float = Field(4.4478, ge=0, description="multiple of the MAD that is added to the median")
    rounds: int = Field(10, ge=1, description="number of latest rounds whose durations count")
    first: ShortSeconds | None = Field(None, gt=0, description="of rounds before a duration is known; null: none")

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
