"""The critical path of each round, and the device or link that limited it.

A round's *critical path* is the download, computation and upload of the client that closed it. The round's seconds are
split among these phases; the rest is waiting for a deadline or for other clients. In an asynchronous run, the closing
client may have started in an earlier round; only the time within the round counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from edgefl.report.course.course import Computation, Course, Round, Transfer
from edgefl.wording import with_article

Link = tuple[str, str]


class Breakdown(NamedTuple):
    """Seconds of one round's critical path; the first four sum to the round, hidden seconds are before its start."""

    download: float
    compute: float
    upload: float
    waiting: float
    hidden: float


class Bottleneck(NamedTuple):
    """The longest phase of a round's critical path.

    Attributes:
        phase: ``download``, ``compute``, ``upload`` or ``waiting``.
        name: the device profile that computed, the slowest link, ``TCP connection``, or what the round waited for.
        seconds: the duration of the phase within the round.
    """

    phase: str
    name: str
    seconds: float


class _Path(NamedTuple):
    """Transfers and computations of the closing client, with the relays of its cell."""

    down: list[Transfer]
    compute: list[Computation]
    up: list[Transfer]


class _Index:
    """The course's rows by job, cell and client."""

    def __init__(self, course: Course) -> None:
        self.course = course
        self._jobs: defaultdict[tuple[int, int], list[Transfer]] = defaultdict(list)
        self._relays: defaultdict[tuple[int, str], list[Transfer]] = defaultdict(list)
        self._computations: defaultdict[int, list[Computation]] = defaultdict(list)
        for each in course.transfers:
            broken = course.broken.get(each.flow)
            # The wait for the next attempt is a part of a transfer.
            transfer = each if broken is None else each._replace(ended=each.ended + broken.wait)
            if transfer.item == "relay":
                cell = transfer.path[0] if transfer.up else transfer.path[-1]
                self._relays[transfer.round, cell].append(transfer)
            elif transfer.item != "broadcast" and course.own_fates.get(transfer.flow) != "prefetched_in_vain":
                # Transfers before the job's start are not on any critical path.
                since = course.sent_off.get((transfer.client, transfer.dispatch), transfer.started)
                if transfer.ended > since or transfer.started >= since:
                    within = transfer._replace(started=max(transfer.started, since))
                    self._jobs[transfer.client, transfer.dispatch].append(within)
        for computation in course.computations:
            self._computations[computation.client].append(computation)

    def path(self, round: Round) -> _Path:
        own = self._jobs[round.critical, round.dispatch]
        down = [transfer for transfer in own if not transfer.up]
        up = [transfer for transfer in own if transfer.up]
        if not own:
            return _Path([], [], [])
        began = min(transfer.started for transfer in own)
        ended = max(transfer.ended for transfer in own)
        compute = [each for each in self._computations[round.critical] if began <= each.started and each.ended <= ended]
        gate = (down or up)[0].path[0 if down else -1]
        relays = self._relays.get((round.number, gate), [])
        return _Path(
            down + [each for each in relays if not each.up], compute, up + [each for each in relays if each.up]
        )


def breakdown_of(course: Course) -> list[Breakdown]:
    """The seconds of each round by phase, in the rounds' order."""
    index = _Index(course)
    return [_breakdown(index.path(round), round) for round in course.rounds]


def _breakdown(path: _Path, round: Round) -> Breakdown:
    download = _covered(path.down, round)
    compute = _covered(path.compute, round)
    upload = _covered(path.up, round)
    waiting = max(0.0, round.ended - round.began - download - compute - upload)
    return Breakdown(download, compute, upload, waiting, round.hidden)


def _covered(phases: Iterable[Transfer | Computation], round: Round) -> float:
    """Seconds of the round during which at least one of the phases was active."""
    spans = sorted((max(each.started, round.began), min(each.ended, round.ended)) for each in phases)
    covered, until = 0.0, round.began
    for start, end in spans:
        covered += max(0.0, end - max(start, until))
        until = max(until, end)
    return covered


def bottlenecks_of(course: Course) -> list[Bottleneck]:
    """What limited each round, in the rounds' order.

    The slowest link of a transfer's path is the one with the least capacity for each flow that shared it at that time.
    A TCP connection with less than half of this share is limited by its round trips, its window or its losses.
    """
    index, load = _Index(course), _Load(course)
    bottlenecks = []
    for round in course.rounds:
        path = index.path(round)
        seconds = _breakdown(path, round)
        phase = max(("compute", "download", "upload", "waiting"), key=lambda name: getattr(seconds, name))
        if phase == "compute":
            name = course.device_of(round.critical)
        elif phase == "waiting":
            name = "the deadline or other clients" if round.critical >= 0 else "the deadline"
        else:
            name = load.narrowest(path.down if phase == "download" else path.up, course)
        bottlenecks.append(Bottleneck(phase, name, getattr(seconds, phase)))
    return bottlenecks


def bottleneck_counts(bottlenecks: Sequence[Bottleneck]) -> list[tuple[Bottleneck, int]]:
    """How many rounds each phase of each device or link limited; seconds are summed.

    The phase that limited most rounds comes first, and within a phase the device or link that limited most.
    """
    rounds: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for bottleneck in bottlenecks:
        rounds[bottleneck.phase, bottleneck.name].append(bottleneck.seconds)
    of_phase = Counter(each.phase for each in bottlenecks)
    found = [(Bottleneck(phase, name, sum(seconds)), len(seconds)) for (phase, name), seconds in rounds.items()]
    return sorted(found, key=lambda each: (-of_phase[each[0].phase], -each[1], -each[0].seconds))


_LIMITED_BY_LINK = 0.5
"""A TCP connection that gets less than this part of its share of the slowest link is limited by itself."""


class _Load:
    """The number of flows that share each link at any time."""

    def __init__(self, course: Course) -> None:
        spans: defaultdict[Link, list[tuple[float, float]]] = defaultdict(list)
        for transfer in course.transfers:
            for link in transfer.links:
                spans[link].append((transfer.started + transfer.latency, transfer.ended))
        self._spans = {link: np.array(found) for link, found in spans.items()}

    def narrowest(self, transfers: Sequence[Transfer], course: Course) -> str:
        longest = max(transfers, key=lambda each: each.ended - each.started)
        begin, end = longest.started + longest.latency, longest.ended

        def share(link: Link) -> float:
            spans = self._spans[link]
            together = np.minimum(spans[:, 1], end) - np.maximum(spans[:, 0], begin)
            flows = float(together.clip(min=0.0).sum()) / max(end - begin, 1e-12)
            return _capacity(course.capacities.get(link, []), (begin + end) / 2) / max(flows, 1.0)

        link = min(longest.links, key=share)
        if longest.tcp and 8 * longest.bytes < _LIMITED_BY_LINK * share(link) * (end - begin):
            return "TCP connection (round trips, window, losses)"
        if any(node == f"client/{longest.client}" for node in link):
            return f"own link of {with_article(course.device_of(longest.client))}"
        return f"{link[0]} → {link[1]}"


def _capacity(history: Sequence[tuple[float, float]], moment: float) -> float:
    """The capacity at a moment; infinite if the log contains none."""
    known = [value for time, value in history if time <= moment]
    return known[-1] if known else float("inf")
