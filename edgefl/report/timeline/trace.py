"""A run in the Chrome trace-event format, for ui.perfetto.dev and chrome://tracing.

Format: "Trace Event Format", Google, 2016 (a JSON object with ``traceEvents``). Times are microseconds of virtual time.
There are three processes: the rounds with the server, the clients, and the links. Each client and each link has a
thread. Slices that overlap are on further threads, because slices of one thread must not overlap. A transfer is a slice
on the tracks of its client and of each link; an arrow connects the sender's track with the receiver's.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from edgefl.errors import UserError
from edgefl.report.timeline.data import Broken, Timeline, Transfer
from edgefl.wording import grouped

ROUNDS, CLIENTS, LINKS = 1, 2, 3
"""Process numbers; threads are numbered across all of them."""

_PROCESSES = {ROUNDS: "rounds and server", CLIENTS: "clients", LINKS: "links"}
_WORDS = {"down": "download", "up": "upload", "prefetch": "prefetch", "broadcast": "broadcast", "relay": "relay"}
_ASIDE = ("prefetch", "broadcast")
_TICK = 0.001  # microseconds, the resolution of written times

Link = tuple[str, str]


class Window(NamedTuple):
    """The time span of the trace, which contains everything that overlaps it."""

    began: float
    ended: float

    def holds(self, started: float, ended: float) -> bool:
        """Whether the span from ``started`` to ``ended`` overlaps it."""
        if started == ended:
            return self.began <= started <= self.ended
        return started < self.ended and ended > self.began


class Track(NamedTuple):
    """A thread: its process, its position among the process's threads, and its name."""

    process: int
    order: tuple[int, int]
    name: str


class Slice(NamedTuple):
    """An activity with a start and an end on a track."""

    track: Track
    name: str
    kind: str
    started: float
    ended: float
    facts: dict[str, Any]


_SERVER = Track(ROUNDS, (0, 0), "rounds")


def window_of(timeline: Timeline, rounds: tuple[int, int] | None) -> Window:
    """The time of rounds ``first`` to ``last``; the whole run for ``None``."""
    if rounds is None:
        return Window(0.0, timeline.ended)
    known = {round.number: round for round in timeline.rounds}
    first, last = rounds
    if first > last or first not in known or last not in known:
        numbers = f"1 to {max(known)}" if known else "none"
        raise UserError(f"expected rounds of this run ({numbers}), found {first}-{last}")
    return Window(known[first].began, known[last].ended)


def trace_of(timeline: Timeline, name: str, rounds: tuple[int, int] | None = None) -> dict[str, Any]:
    """The trace of one method and seed, of the first to the last of ``rounds`` or all, with the run's name."""
    window = window_of(timeline, rounds)
    transfers = [each for each in timeline.transfers if window.holds(each.started, each.ended)]
    laid = _on_clients(timeline, transfers)
    moved = [_transfer(each, track, timeline.broken.get(each.flow)) for each, track in laid]
    every = [*_rounds(timeline), *_work(timeline), *moved, *_on_links(transfers), *_failures(timeline)]
    slices = [each for each in every if window.holds(each.started, each.ended)]
    threads = {track: number for number, track in enumerate(sorted({each.track for each in slices}), 1)}
    events = [_written(each, threads) for each in slices]
    events += [*_arrows(laid, threads), *_counters(timeline, transfers, window)]
    events.sort(key=lambda event: (event["ts"], -event.get("dur", 0.0)))
    facts = {"displayTimeUnit": "ms", "otherData": {"run": name, "clock": "virtual time"}}
    return {**facts, "traceEvents": [*_names(threads), *events]}


def _micro(seconds: float) -> float:
    return round(1e6 * seconds, 3)


def _written(each: Slice, threads: dict[Track, int]) -> dict[str, Any]:
    start = _micro(each.started)
    place = {"ph": "X", "pid": each.track.process, "tid": threads[each.track], "name": each.name, "cat": each.kind}
    return place | {"ts": start, "dur": round(max(0.0, _micro(each.ended) - start), 3), "args": each.facts}


def _rounds(timeline: Timeline) -> Iterable[Slice]:
    for each in timeline.rounds:
        closed_by = "its deadline" if each.critical < 0 else f"client {each.critical}"
        facts = {"closed_by": closed_by, "aggregated": len(each.aggregated)}
        facts |= {"exposed_seconds": each.exposed, "hidden_seconds": each.hidden}
        yield Slice(_SERVER, f"round {each.number}", "round", each.began, each.ended, facts)


def _client(timeline: Timeline, client: int, lane: int) -> Track:
    parallel = f", parallel ({lane})" if lane else ""
    return Track(CLIENTS, (client, lane), f"client {client}, {timeline.device_of(client)}{parallel}")


def _work(timeline: Timeline) -> Iterable[Slice]:
    for job in timeline.computations:
        facts = {"round": job.round, "blocks": job.alpha, "gigaflop": job.flops / 1e9, "joules": job.joules}
        name = "compute" if job.whole else "compute, incomplete"
        yield Slice(_client(timeline, job.client, 0), name, "compute", job.started, job.ended, facts)
    for gap in timeline.frameworks:
        track = _client(timeline, gap.client, 0)
        yield Slice(track, "framework", "framework", gap.started, gap.ended, {"round": gap.round})


def _on_clients(timeline: Timeline, transfers: Sequence[Transfer]) -> list[tuple[Transfer, Track]]:
    """Each transfer with its track; prefetches have a separate track next to the client's current round."""
    found = []
    own = [each for each in transfers if each.client >= 0]
    for first, moved in (0, [e for e in own if e.item not in _ASIDE]), (9, [e for e in own if e.item in _ASIDE]):
        for each, lane in _lanes(moved, lambda each: each.client):
            found.append((each, _client(timeline, each.client, first + lane)))
    for each, lane in _lanes([each for each in transfers if each.client < 0], lambda _: 0):
        found.append((each, Track(ROUNDS, (1, lane), f"to and from cells{f' ({lane})' if lane else ''}")))
    return found


def _transfer(each: Transfer, track: Track, broken: Broken | None) -> Slice:
    name = _WORDS.get(each.item, each.item) + ("" if each.whole else ", aborted" if broken is None else ", broken")
    facts = {"round": each.round, "bytes": each.bytes, "joules": each.joules, "path": " → ".join(each.path)}
    if broken is not None:
        facts |= {"bytes_lost": broken.bytes, "seconds_until_next_attempt": broken.wait}
    return Slice(track, name, "transfer", each.started, each.ended, facts)


def _failures(timeline: Timeline) -> Iterable[Slice]:
    for number, (what, spans) in enumerate(sorted(timeline.failures.items())):
        track = Track(ROUNDS, (2, number), f"{what}: failures")
        name = "crashed" if what.startswith("client ") else "outage"
        for began, ended in spans:
            yield Slice(track, name, "failure", began, min(ended, timeline.ended), {})


def _lanes(transfers: Sequence[Transfer], of: Callable[[Transfer], Any]) -> Iterable[tuple[Transfer, int]]:
    """Each transfer with the first lane of its owner that is free at its start."""
    until: defaultdict[Any, list[float]] = defaultdict(list)
    for each in sorted(transfers, key=lambda each: (each.started, each.flow)):
        busy = until[of(each)]
        lane = next((number for number, end in enumerate(busy) if end <= _micro(each.started)), len(busy))
        busy.extend([0.0] * (lane + 1 - len(busy)))
        busy[lane] = _micro(each.ended)
        yield each, lane


def _on_links(transfers: Sequence[Transfer]) -> Iterable[Slice]:
    """Each transfer on each link of its path; links that do not belong to a client are first."""
    by_link = grouped((link, each) for each in transfers for link in each.links)
    shared = sorted(by_link, key=lambda link: (any(node.startswith("client/") for node in link), link))
    for number, link in enumerate(shared):
        for each, lane in _lanes(by_link[link], lambda _: 0):
            track = Track(LINKS, (number, lane), " → ".join(link) + (f" ({lane + 1})" if lane else ""))
            receiver = f"client {each.client}" if each.client >= 0 else each.path[-1]
            facts = {"bytes": each.bytes, "mean_megabit_per_second": each.bits_per_second / 1e6}
            name = f"{_WORDS.get(each.item, each.item)}, {receiver}"
            yield Slice(track, name, "flow", each.started, each.ended, facts)


def _arrows(laid: Sequence[tuple[Transfer, Track]], threads: dict[Track, int]) -> Iterable[dict[str, Any]]:
    """An arrow from the round's track to the client's for each download, and back for each upload."""
    if _SERVER not in threads:
        return
    for each, track in laid:
        if each.client < 0:
            continue
        tail, head = (track, _SERVER) if each.up else (_SERVER, track)
        common = {"cat": "transfer", "name": _WORDS.get(each.item, each.item), "id": each.flow}
        start = _micro(each.started)
        # An arrow is attached to the slice that contains its end, and a slice does not contain its own end time.
        end = max(start, round(_micro(each.ended) - _TICK, 3))
        yield {"ph": "s", **common, "pid": tail.process, "tid": threads[tail], "ts": start}
        yield {"ph": "f", "bp": "e", **common, "pid": head.process, "tid": threads[head], "ts": end}


def _counters(timeline: Timeline, transfers: Sequence[Transfer], window: Window) -> Iterable[dict[str, Any]]:
    """The load of each link: its flows, the sum of their mean rates, and its capacity."""
    changes: defaultdict[Link, list[tuple[float, int, float]]] = defaultdict(list)
    for each in transfers:
        begin = min(each.started + each.latency, each.ended)
        for link in each.links:
            changes[link] += [(begin, 1, each.bits_per_second), (each.ended, -1, -each.bits_per_second)]
    for link, found in sorted(changes.items()):
        flows, rate = 0, 0.0
        at: dict[float, tuple[int, float]] = {}
        for time, more, faster in sorted(found):
            flows, rate = flows + more, rate + faster
            at[_micro(time)] = (flows, rate if flows else 0.0)
        for moment, (count, bits) in at.items():
            yield _counter(link, "flows", moment, flows=count)
            yield _counter(link, "Mbit/s", moment, load=round(bits / 1e6, 6))
        for time, value in timeline.capacities.get(link, ()):
            if window.began <= time <= window.ended:
                yield _counter(link, "capacity, Mbit/s", _micro(time), capacity=value / 1e6)


def _counter(link: Link, what: str, moment: float, **values: float) -> dict[str, Any]:
    name = f"{' → '.join(link)}: {what}"
    return {"ph": "C", "pid": LINKS, "tid": 0, "name": name, "cat": "load", "ts": moment, "args": values}


def _names(threads: dict[Track, int]) -> Iterable[dict[str, Any]]:
    tracks = [(process, 0, "process", process, name) for process, name in _PROCESSES.items()]
    tracks += [(track.process, number, "thread", number, track.name) for track, number in threads.items()]
    for process, thread, what, order, name in tracks:
        common = {"ph": "M", "pid": process, "tid": thread, "ts": 0}
        yield {**common, "name": f"{what}_name", "args": {"name": name}}
        yield {**common, "name": f"{what}_sort_index", "args": {"sort_index": order}}
