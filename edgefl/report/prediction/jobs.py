"""The phases of each job: how long its client downloads, computes, uploads and waits."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from edgefl.report.timeline.data import Timeline, Transfer
from edgefl.report.timeline.usage import covered

Phase = Literal["download", "hidden download", "compute", "upload", "between phases", "wait", "relay"]

PHASES: tuple[Phase, ...] = (
    "download", "hidden download", "compute", "upload", "between phases", "wait", "relay",
)  # fmt: skip
"""The order in which phases are shown.

``download`` lies after the beginning of the job, ``hidden download`` (a prefetch) before it; ``between phases`` is the
rest of the time until the update has arrived, ``wait`` from then to the end of the round; ``relay`` is a transfer
between the server and a cell.
"""

Key = tuple[int, int, str]
"""The client, its dispatch and an empty text; of a relay -1, its round, and where it goes."""


@dataclass
class Job:
    """One participation of a client, or one relay.

    Attributes:
        round: the round it belongs to, from 1.
        seconds: of each phase that was completed.
    """

    round: int
    seconds: dict[Phase, float] = field(default_factory=dict)


def jobs_of(timeline: Timeline, *, common_rounds: bool) -> dict[Key, Job]:
    """The jobs of a timeline.

    Args:
        timeline: the timeline of one method and seed.
        common_rounds: whether the jobs of a round begin with it. Otherwise a job begins with its dispatch or its first
            download.
    """
    rounds = {each.number: each.began for each in timeline.rounds}
    ends = sorted(each.ended for each in timeline.rounds)
    own: defaultdict[tuple[int, int], list[Transfer]] = defaultdict(list)
    jobs: dict[Key, Job] = {}
    for transfer in timeline.transfers:
        if transfer.item == "relay":
            job = jobs.setdefault((-1, transfer.round, "–".join(transfer.path)), Job(transfer.round))
            _add(job, "relay", [transfer], [(transfer.started, transfer.ended)], timeline)
        elif timeline.own_fates.get(transfer.flow) != "prefetched_in_vain":
            own[transfer.client, transfer.dispatch].append(transfer)
    computing: defaultdict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    aborted = set()
    for each in timeline.computations:
        computing[each.client, each.dispatch].append((each.started, each.ended))
        if not each.whole:
            aborted.add((each.client, each.dispatch))
    for (client, dispatch), transfers in own.items():
        job = jobs[client, dispatch, ""] = Job(transfers[0].round)
        down = [each for each in transfers if each.item == "down"]
        first = min((each.started for each in down), default=rounds.get(job.round, 0.0))
        began = timeline.sent_off.get((client, dispatch), first)
        if common_rounds:
            began = rounds.get(job.round, began)
        fetched = [each for each in transfers if not each.up]
        spans = [_span(each, timeline) for each in fetched]
        _add(job, "download", fetched, [(max(start, began), end) for start, end in spans if end > began], timeline)
        if any(start < began for start, _ in spans):
            hidden = [(start, min(end, began)) for start, end in spans if start < began]
            _add(job, "hidden download", fetched, hidden, timeline)
        if computing[client, dispatch] and (client, dispatch) not in aborted:
            job.seconds["compute"] = covered(computing[client, dispatch])
        sent = [each for each in transfers if each.up]
        if sent:
            _add(job, "upload", sent, [_span(each, timeline) for each in sent], timeline)
        if {"download", "compute", "upload"} <= job.seconds.keys():
            arrived = max(each.ended for each in sent)
            active = sum(job.seconds[phase] for phase in ("download", "compute", "upload"))
            job.seconds["between phases"] = max(0.0, arrived - began - active)
            end = bisect_left(ends, arrived)
            if end < len(ends):
                job.seconds["wait"] = ends[end] - arrived
    return jobs


def _add(
    job: Job, phase: Phase, transfers: list[Transfer], spans: Sequence[tuple[float, float]], timeline: Timeline
) -> None:
    """Add a phase of transfers, unless one of them was aborted."""
    if all(each.whole or each.flow in timeline.broken for each in transfers):
        job.seconds[phase] = job.seconds.get(phase, 0.0) + covered(spans)


def _span(transfer: Transfer, timeline: Timeline) -> tuple[float, float]:
    """The start and the end of a transfer; the wait for the next attempt is a part of it."""
    broken = timeline.broken.get(transfer.flow)
    return transfer.started, transfer.ended + (0.0 if broken is None else broken.wait)
