"""Bytes by direction and fate, and the bytes, joules and seconds of each client."""

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

import numpy as np

from edgefl.record.figures import Floats
from edgefl.record.kinds import FATES
from edgefl.report.timeline.data import Computation, Round, Timeline, Transfer
from edgefl.wording import grouped, with_article

Link = tuple[str, str]


class Breakdown(NamedTuple):
    """Seconds of one round's critical path, which sum to the round, but for hidden seconds, before its start."""

    download: float
    compute: float
    upload: float
    framework: float  # round_overhead, which the record counts as transfers
    server: float  # its aggregation and evaluation
    evaluation: float  # on clients
    waiting: float
    hidden: float


class Bottleneck(NamedTuple):
    """The longest phase of a round's critical path."""

    phase: str  # a phase of Breakdown
    name: str  # the device profile that computed, the slowest link, TCP connection, or what the round waited for
    seconds: float  # the duration of the phase within the round


class _Path(NamedTuple):
    """Transfers and computations of the closing client, with the relays of its cell."""

    down: list[Transfer]
    compute: list[Computation]
    up: list[Transfer]


def _paths(timeline: Timeline) -> list[_Path]:
    jobs: defaultdict[tuple[int, int], list[Transfer]] = defaultdict(list)
    relays: defaultdict[tuple[int, str], list[Transfer]] = defaultdict(list)
    for each in timeline.transfers:
        transfer = each._replace(ended=timeline.end_of(each))
        if transfer.item == "relay":
            relays[transfer.round, transfer.path[0 if transfer.up else -1]].append(transfer)
        elif transfer.item != "broadcast" and timeline.own_fates.get(transfer.flow) != "prefetched_in_vain":
            # Transfers before the job's start are not on any critical path.
            since = timeline.sent_off.get(transfer.job, transfer.started)
            if transfer.ended > since or transfer.started >= since:
                jobs[transfer.job].append(transfer._replace(started=max(transfer.started, since)))
    computing = grouped((each.client, each) for each in timeline.computations)
    between = [each for each in timeline.transfers if each.flow in timeline.receptions]
    received = grouped(((timeline.receptions[each.flow], each.round), each) for each in between)

    def path(round: Round) -> _Path:
        own = jobs[round.critical, round.dispatch]
        if not own:
            return _Path([], [], [])
        down, up = ([each for each in own if each.up is side] for side in (False, True))
        # Without a download, the job began with its computation.
        began, ended = min(each.started for each in own) if down else round.began, max(each.ended for each in own)
        compute = [each for each in computing.get(round.critical, ()) if began <= each.started and each.ended <= ended]
        gate = (down or up)[0].path[0 if down else -1]
        near = relays.get((round.number, gate), [])
        down += received.get((round.critical, round.number), [])
        return _Path(down + [each for each in near if not each.up], compute, up + [each for each in near if each.up])

    return [path(round) for round in timeline.rounds]


def breakdown_of(timeline: Timeline) -> list[Breakdown]:
    """The seconds of each round by phase, in the rounds' order."""
    peers = bool(timeline.receptions)
    return [_breakdown(path, round, peers) for path, round in zip(_paths(timeline), timeline.rounds, strict=True)]


def _breakdown(path: _Path, round: Round, peers: bool) -> Breakdown:
    """Peers wait for each other where others wait for a framework."""
    closed, last = round.ended - round.server - round.evaluation, (round.server, round.evaluation)
    download, compute, upload = (
        covered((max(each.started, round.began), min(each.ended, closed)) for each in phases) for phases in path
    )
    rest = max(0.0, closed - round.began - download - compute - upload)
    framework = 0.0 if peers else max(0.0, min(rest, round.exposed - download - upload))
    return Breakdown(download, compute, upload, framework, *last, rest - framework, round.hidden)


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """The seconds that lie in at least one span."""
    seconds, until = 0.0, -math.inf
    for start, end in sorted(spans):
        seconds += max(0.0, end - max(start, until))
        until = max(until, end)
    return seconds


def bottlenecks_of(timeline: Timeline) -> list[Bottleneck]:
    """What limited each round, in the rounds' order.

    The slowest link of a transfer's path is the one with the least capacity for each flow that shared it at that time.
    A TCP connection with less than half of this share is limited by its round trips and its window.
    """
    flows = [(link, each) for each in timeline.transfers for link in each.links]
    spans = grouped((link, (each.started + each.latency, each.ended)) for link, each in flows)
    used = {link: np.array(found) for link, found in spans.items()}
    bottlenecks = []
    names = {"framework": "the framework", "server": "the server", "evaluation": "the evaluation on clients"}
    for path, round, seconds in zip(_paths(timeline), timeline.rounds, breakdown_of(timeline), strict=True):
        phase = max(("compute", "download", "upload", *names, "waiting"), key=lambda each: getattr(seconds, each))
        if phase == "compute":
            name = timeline.device_of(round.critical)
        elif phase in names:
            name = names[phase]
        elif phase == "waiting":
            name = "the deadline or other clients" if round.critical >= 0 else "the deadline"
        else:
            name = _narrowest(path.down if phase == "download" else path.up, timeline, used)
        bottlenecks.append(Bottleneck(phase, name, getattr(seconds, phase)))
    return bottlenecks


def bottleneck_counts(bottlenecks: Sequence[Bottleneck]) -> list[tuple[Bottleneck, int]]:
    """How many rounds each phase of each device or link limited, with summed seconds; the most frequent phase first."""
    rounds = grouped(((each.phase, each.name), each.seconds) for each in bottlenecks)
    of_phase = Counter(each.phase for each in bottlenecks)
    found = [(Bottleneck(phase, name, sum(seconds)), len(seconds)) for (phase, name), seconds in rounds.items()]
    return sorted(found, key=lambda each: (-of_phase[each[0].phase], -each[1], -each[0].seconds))


_LIMITED_BY_LINK = 0.5
"""A TCP connection that gets less than this part of its share of the slowest link is limited by itself."""


def _narrowest(transfers: Sequence[Transfer], timeline: Timeline, used: Mapping[Link, Floats]) -> str:
    """What limits the longest of these transfers; ``used`` are the spans ``[flows, 2]`` in which each link is used."""
    longest = max(transfers, key=lambda each: each.ended - each.started)
    begin, end = longest.started + longest.latency, longest.ended

    def share(link: Link) -> float:
        together = np.minimum(used[link][:, 1], end) - np.maximum(used[link][:, 0], begin)
        flows = float(together.clip(min=0.0).sum()) / max(end - begin, 1e-12)
        known = [value for time, value in timeline.capacities.get(link, ()) if time <= (begin + end) / 2]
        return (known or [math.inf])[-1] / max(flows, 1.0)

    link = min(longest.links, key=share)
    if longest.tcp and 8 * longest.bytes < _LIMITED_BY_LINK * share(link) * (end - begin):
        return "TCP connection (round trips, window)"
    if any(node == f"client/{longest.client}" for node in link):
        return f"own link of {with_article(timeline.device_of(longest.client))}"
    return f"{link[0]} → {link[1]}"


class Traffic(NamedTuple):
    """Bytes delivered in a run, by fate: to clients, and from clients."""

    down: dict[str, int]
    up: dict[str, int]


@dataclass
class ClientUse:
    """Seconds, bytes, joules and jobs of one client in a run."""

    client: int
    group: int
    device: str
    bytes_down: int = 0
    bytes_up: int = 0
    # by download, compute, upload and waiting, the last from its update's arrival until the round closed
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    # by compute, transfer, idle and radio
    joules: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    jobs: int = 0  # jobs with at least one transfer


def traffic_of(timeline: Timeline) -> Traffic:
    """All bytes delivered to and from clients, each counted once."""
    down, up = (dict[str, int]({fate: 0 for fate in FATES if fate != "broken"}) for _ in range(2))
    for transfer in timeline.transfers:
        if transfer.item == "relay":
            continue
        fate, broken = timeline.fate_of(transfer), timeline.broken.get(transfer.flow)
        side = up if transfer.up else down
        side[fate] = side.get(fate, 0) + transfer.bytes
        if transfer.flow in timeline.receptions:
            down[fate] = down.get(fate, 0) + transfer.bytes
        if broken is not None:
            side[fate] -= broken.bytes
            side["broken"] = side.get("broken", 0) + broken.bytes
    return Traffic(down, up)


def use_of_clients(timeline: Timeline) -> list[ClientUse]:
    """The use of each client that took part, ascending by client."""
    found: dict[int, ClientUse] = {}

    def use(client: int) -> ClientUse:
        group = timeline.groups.get(client, (-1, ""))[0]
        return found.setdefault(client, ClientUse(client, group, timeline.device_of(client)))

    arrived: dict[tuple[int, int], float] = {}
    moved = [transfer for transfer in timeline.transfers if transfer.client >= 0]
    for transfer in moved:
        one = use(transfer.client)
        one.seconds["upload" if transfer.up else "download"] += transfer.ended - transfer.started
        if transfer.flow in timeline.receptions:
            peer = use(timeline.receptions[transfer.flow])
            peer.bytes_down += transfer.bytes
            peer.seconds["download"] += transfer.ended - transfer.started
        if transfer.up:
            one.bytes_up += transfer.bytes
            arrived[transfer.client, transfer.round] = transfer.ended
        else:
            one.bytes_down += transfer.bytes
    for computation in timeline.computations:
        use(computation.client).seconds["compute"] += computation.ended - computation.started
    for client, drawn in timeline.joules.items():
        use(client).joules = drawn
    for round in timeline.rounds:
        for client in round.aggregated:
            # Only arrivals of the same round count, because updates do not wait in asynchronous runs.
            use(client).seconds["waiting"] += round.ended - arrived.get((client, round.number), round.ended)
    for client, _ in {transfer.job for transfer in moved}:
        use(client).jobs += 1
    return [found[client] for client in sorted(found)]


def by_device(uses: Sequence[ClientUse]) -> dict[str, list[ClientUse]]:
    """The clients of each kind of device, kinds in the order of the fleet's groups."""
    return grouped((use.device, use) for use in sorted(uses, key=lambda use: (use.group, use.client)))


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
    computing = grouped((each.job, each) for each in timeline.computations)

    def add(job: Job, phase: Phase, transfers: Sequence[Transfer], spans: Sequence[tuple[float, float]]) -> None:
        """Add a phase of transfers, unless one of them was aborted."""
        if all(each.whole or each.flow in timeline.broken for each in transfers):
            job.seconds[phase] = job.seconds.get(phase, 0.0) + covered(spans)

    for transfer in timeline.transfers:
        if transfer.item == "relay":
            job = jobs.setdefault((-1, transfer.round, "–".join(transfer.path)), Job(transfer.round, {}))
            add(job, "relay", [transfer], [(transfer.started, transfer.ended)])
        elif timeline.own_fates.get(transfer.flow) != "prefetched_in_vain":
            own[transfer.job].append(transfer)
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
        if (found := computing.get(key)) and all(each.whole for each in found):
            job.seconds["compute"] = covered((each.started, each.ended) for each in found)
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
