"""The probable cause of a gap between predicted and measured seconds, by rules on the records of both runs."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Literal

from edgefl.record.emulation import Emulation
from edgefl.report.against.jobs import Job, Phase
from edgefl.report.course import Transfer

Cause = Literal["failure", "attempts", "set-up", "sharing", "scheduling", "device", "other"]

CAUSES: dict[Cause, str] = {
    "failure": "its client or a link of its path failed during a transfer of the job",
    "attempts": "a transfer broke and was repeated",
    "set-up": "set-up of the connection and slow start: the gap is at most the round trips that are not predicted",
    "sharing": "unequal shares: other transfers used a link of its path for at least as long as the gap",
    "scheduling": "the computer acted later than planned",
    "device": "training took other seconds than the device's profile gives",
    "other": "none of the rules applies",
}
"""The causes in the order in which their rules apply to transfers, each with its meaning."""

_SEGMENT_BYTES = 1460
_FIRST_SEGMENTS = 10
"""A connection begins with ten segments (RFC 6928), and slow start doubles them in each round trip."""


class SharedLinks:
    """When the links of a course carried more than one transfer.

    Args:
        transfers: those of the course.
    """

    def __init__(self, transfers: Iterable[Transfer]) -> None:
        changes: defaultdict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)
        for each in transfers:
            for link in each.links:
                changes[link] += [(each.started, 1), (each.ended, -1)]
        self._spans = {link: _Spans(_shared(sorted(found))) for link, found in changes.items()}

    def seconds(self, transfer: Transfer) -> float:
        """For how long another transfer used a link of this transfer's path; of several links the longest."""
        return max((self._spans[link].within(transfer.started, transfer.ended) for link in transfer.links), default=0.0)


class _Spans:
    """Spans of time in order, without overlaps."""

    def __init__(self, spans: Sequence[tuple[float, float]]) -> None:
        self._spans = spans
        self._starts = [start for start, _ in spans]
        self._before = [0.0, *accumulate(end - start for start, end in spans)]

    def within(self, start: float, end: float) -> float:
        """The seconds of the spans between two moments."""
        return self._until(end) - self._until(start)

    def _until(self, moment: float) -> float:
        index = bisect_right(self._starts, moment)
        if not index:
            return 0.0
        start, end = self._spans[index - 1]
        return self._before[index - 1] + min(moment, end) - start


def _shared(changes: Iterable[tuple[float, int]]) -> list[tuple[float, float]]:
    """The spans with at least two transfers, from their starts (1) and ends (-1) in order of time."""
    spans, count, since = [], 0, 0.0
    for moment, change in changes:
        count += change
        if count == 2 and change > 0:
            since = moment
        elif count == 1 and change < 0 and moment > since:
            spans.append((since, moment))
    return spans


def cause_of(
    phase: Phase,
    gap: float,
    jobs: tuple[Job, Job],
    shared: tuple[SharedLinks, SharedLinks],
    emulation: Emulation | None,
) -> Cause:
    """The cause of a gap; the first rule that applies gives it.

    Args:
        phase: the phase.
        gap: measured minus predicted seconds.
        jobs: the predicted and the measured job.
        shared: the shared links of both runs.
        emulation: how the measured run was measured; ``None`` if it was simulated.
    """
    if phase == "compute":
        return "scheduling" if emulation is not None and emulation.compute == "paced" else "device"
    transfers = [job.transfers.get(phase, []) for job in jobs]
    if not all(transfers):
        return "scheduling" if phase == "between phases" and emulation is not None else "other"
    if any(job.failed for job in jobs):
        return "failure"
    if any(job.attempts for job in jobs):
        return "attempts"
    if 0.0 < gap <= sum(map(_opening_seconds, transfers[0])):
        return "set-up"
    alongside = max(sum(links.seconds(each) for each in sent) for links, sent in zip(shared, transfers, strict=True))
    return "sharing" if abs(gap) <= alongside else "other"


def _opening_seconds(transfer: Transfer) -> float:
    """The round trips that a prediction may lack: a handshake, a request, and the doublings of slow start.

    A prediction with connections (``kind: tcp``) contains them; it may be one round trip too short.
    """
    round_trip = 2.0 * (transfer.latency - transfer.setup)
    if transfer.tcp:
        return round_trip
    return round_trip * (2.0 + math.log2(1.0 + transfer.bytes / (_FIRST_SEGMENTS * _SEGMENT_BYTES)))
