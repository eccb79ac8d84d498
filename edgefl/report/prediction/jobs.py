"""The phases of each job: how long its client downloads, computes, uploads and waits."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

from edgefl.report.timeline.data import Computation, Timeline, Transfer
from edgefl.report.timeline.usage import covered

Phase = Literal["download", "hidden download", "compute", "upload", "between phases", "wait", "relay"]

PHASES: tuple[Phase, ...] = get_args(Phase)
"""The order in which phases are shown.

``download`` lies after the beginning of the job, ``hidden download`` (a prefetch) before it; ``between phases`` is the
rest of the time until the update has arrived, ``wait`` from then to the end of the round; ``relay`` is a transfer
between the server and a cell.
"""

Key = tuple[int, int, str]
"""The client, its dispatch and an empty text; of a relay -1, its round, and where it goes."""


class Job(NamedTuple):
    """One participation of a client, or one relay: its round, from 1, and the seconds of each completed phase."""

    round: int
    seconds: dict[Phase, float]


def jobs_of(timeline: Timeline, *, common_rounds: bool) -> dict[Key, Job]:
    """The jobs of one method and seed.

    With ``common_rounds`` the jobs of a round begin with it; else a job begins with its dispatch or first download.
    """
    jobs: dict[Key, Job] = {}
    own: defaultdict[tuple[int, int], list[Transfer]] = defaultdict(list)
    computing: defaultdict[tuple[int, int], list[Computation]] = defaultdict(list)

    def add(job: Job, phase: Phase, transfers: Sequence[Transfer], spans: Sequence[tuple[float, float]]) -> None:
        """Add a phase of transfers, unless one of them was aborted."""
        if all(each.whole or each.flow in timeline.broken for each in transfers):
            job.seconds[phase] = job.seconds.get(phase, 0.0) + covered(spans)

    for transfer in timeline.transfers:
        if transfer.item == "relay":
            job = jobs.setdefault((-1, transfer.round, "–".join(transfer.path)), Job(transfer.round, {}))
            add(job, "relay", [transfer], [(transfer.started, transfer.ended)])
        elif timeline.own_fates.get(transfer.flow) != "prefetched_in_vain":
            own[transfer.client, transfer.dispatch].append(transfer)
    for each in timeline.computations:
        computing[each.client, each.dispatch].append(each)
    rounds = {each.number: each.began for each in timeline.rounds}
    ends = sorted(each.ended for each in timeline.rounds)
    for key, transfers in own.items():
        job = jobs[(*key, "")] = Job(transfers[0].round, {})
        started = [each.started for each in transfers if each.item == "down"]
        began = timeline.sent_off.get(key, min(started, default=rounds.get(job.round, 0.0)))
        if common_rounds:
            began = rounds.get(job.round, began)
        fetched, sent = ([each for each in transfers if each.up is up] for up in (False, True))
        spans = [(each.started, timeline.end_of(each)) for each in fetched]
        add(job, "download", fetched, [(max(start, began), end) for start, end in spans if end > began])
        if any(start < began for start, _ in spans):
            add(job, "hidden download", fetched, [(start, min(end, began)) for start, end in spans if start < began])
        if computing[key] and all(each.whole for each in computing[key]):
            job.seconds["compute"] = covered((each.started, each.ended) for each in computing[key])
        if sent:
            add(job, "upload", sent, [(each.started, timeline.end_of(each)) for each in sent])
        if {"download", "compute", "upload"} <= job.seconds.keys():
            arrived = max(each.ended for each in sent)
            active = sum(job.seconds[phase] for phase in ("download", "compute", "upload"))
            job.seconds["between phases"] = max(0.0, arrived - began - active)
            end = bisect_left(ends, arrived)
            if end < len(ends):
                job.seconds["wait"] = ends[end] - arrived
    return jobs
