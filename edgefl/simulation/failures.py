"""Crashes of clients and outages of links, which happen at the times that a scenario gives."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import simpy

from edgefl.network.flow import Network
from edgefl.record.listener import EventLog
from edgefl.simulation.failure_specs import Crash, Outage, check_outages, crashes_of, outages_of
from edgefl.simulation.presence import Presence


def schedule_failures(
    env: simpy.Environment, failures: Sequence[Crash | Outage], network: Network, presence: Presence, log: EventLog
) -> None:
    """Let the failures of a scenario happen, and log each beginning and end.

    A client that crashes loses what it has in progress: its transfers, its prefetched parts, its computation. What it
    holds from earlier rounds stays on its storage.
    """
    check_outages(failures, network.topology)

    def at(seconds: float, act: Callable[[], None]) -> None:
        # Failures are scheduled before everything else, so they come first at their instant; those at 0 come now.
        if seconds > 0:
            env.timeout(seconds).callbacks.append(lambda _: act())
        else:
            act()

    def crash(client: int, until: float) -> None:
        log.write(env.now, "failure", client=client, item="crash")
        network.end_process(f"client/{client}")
        presence.crash(client, until)

    def restart(client: int) -> None:
        log.write(env.now, "failure", client=client, item="restart")
        network.begin_process(f"client/{client}")
        presence.restart(client)

    def change(link: int, item: str, act: Callable[[int], None]) -> None:
        source, target = map(str, network.topology.ends(link))
        log.write(env.now, "failure", item=item, source=source, target=target)
        act(link)

    for client, spans in crashes_of(failures).items():
        for began, ended in spans:
            at(began, partial(crash, client, ended))
            if ended < math.inf:
                at(ended, partial(restart, client))
    for ends, spans in outages_of(failures).items():
        link = network.topology.link(*ends)
        for began, ended in spans:
            at(began, partial(change, link, "outage", network.begin_outage))
            if ended < math.inf:
                at(ended, partial(change, link, "repair", network.end_outage))
