"""Bytes by direction and fate, and the bytes, joules and seconds of each client."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from edgefl.record.kinds import FATES
from edgefl.report.course.course import Course


class Traffic(NamedTuple):
    """Bytes delivered in a run, by fate: to clients, from clients, and between server and cells (``backhaul``)."""

    down: dict[str, int]
    up: dict[str, int]
    backhaul: int


@dataclass
class ClientUse:
    """Seconds, bytes, joules and jobs of one client in a run.

    Attributes:
        seconds: by ``download``, ``compute``, ``upload`` and ``waiting``, the last from its update's arrival until the
            round closed.
        joules: by ``compute``, ``transfer``, ``idle`` and ``radio``.
        jobs: jobs with at least one transfer.
    """

    client: int
    group: int
    device: str
    bytes_down: int = 0
    bytes_up: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    joules: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    jobs: int = 0


def traffic_of(course: Course) -> Traffic:
    """All delivered bytes, each counted once."""
    usual = [fate for fate in FATES if fate != "broken"]
    down: dict[str, int] = dict.fromkeys(usual, 0)
    up: dict[str, int] = dict.fromkeys(usual, 0)
    backhaul = 0
    for transfer in course.transfers:
        if transfer.item == "relay":
            backhaul += transfer.bytes
            continue
        fate, broken = course.fate_of(transfer), course.broken.get(transfer.flow)
        side = up if transfer.up else down
        side[fate] = side.get(fate, 0) + transfer.bytes
        if broken is not None:
            side[fate] -= broken.bytes
            side["broken"] = side.get("broken", 0) + broken.bytes
    return Traffic(down, up, backhaul)


def use_of_clients(course: Course) -> list[ClientUse]:
    """The use of each client that took part, ascending by client."""
    found: dict[int, ClientUse] = {}

    def use(client: int) -> ClientUse:
        if client not in found:
            found[client] = ClientUse(client, course.groups.get(client, (-1, ""))[0], course.device_of(client))
        return found[client]

    jobs: set[tuple[int, int]] = set()
    arrived: dict[tuple[int, int], float] = {}
    for transfer in course.transfers:
        if transfer.client < 0:
            continue
        one = use(transfer.client)
        one.seconds["upload" if transfer.up else "download"] += transfer.ended - transfer.started
        if transfer.up:
            one.bytes_up += transfer.bytes
            arrived[transfer.client, transfer.round] = transfer.ended
        else:
            one.bytes_down += transfer.bytes
        jobs.add((transfer.client, transfer.dispatch))
    for computation in course.computations:
        use(computation.client).seconds["compute"] += computation.ended - computation.started
    for client, drawn in course.joules.items():
        use(client).joules = drawn
    for round in course.rounds:
        for client in round.aggregated:
            # Only arrivals of the same round count, because updates do not wait in asynchronous runs.
            use(client).seconds["waiting"] += round.ended - arrived.get((client, round.number), round.ended)
    for client, _ in jobs:
        use(client).jobs += 1
    return [found[client] for client in sorted(found)]


def by_device(uses: Sequence[ClientUse]) -> dict[str, list[ClientUse]]:
    """The clients of each kind of device, kinds in the order of the fleet's groups."""
    kinds: defaultdict[str, list[ClientUse]] = defaultdict(list)
    for use in sorted(uses, key=lambda use: (use.group, use.client)):
        kinds[use.device].append(use)
    return dict(kinds)
