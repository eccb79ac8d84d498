"""Crashes of clients and outages of links, which happen at the times that a scenario gives."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import simpy

from edgefl.network.flow import Network
from edgefl.record.listener import EventLog
from edgefl.simulation.failure_specs import Crash, Outage, Span, check_outages, crashes_of, outages_of
from edgefl.simulation.presence import Presence


class Failures:
    """Lets the failures of a scenario happen, and logs each beginning and end.

    A client that crashes loses what it has in progress: its transfers, its prefetched parts, its computation. What it
    holds from earlier rounds stays on its storage.

    Args:
        env: the run's clock.
        failures: those of the scenario.
        network: ends processes and links.
        presence: lets clients that crash drop out.
        log: receives the rows.
    """

    def __init__(
        self,
        env: simpy.Environment,
        failures: Sequence[Crash | Outage],
        network: Network,
        presence: Presence,
        log: EventLog,
    ) -> None:
        self._env = env
        self._network = network
        self._presence = presence
        self._log = log
        check_outages(failures, network.topology)
        # Failures are scheduled before everything else, so they come first at their instant; those at 0 come now.
        for client, spans in crashes_of(failures).items():
            self._schedule(spans, self._crash_of(client), self._restart_of(client))
        for (source, target), spans in outages_of(failures).items():
            link = network.topology.link(source, target)
            self._schedule(spans, self._outage_of(link), self._repair_of(link))

    def _schedule(self, spans: Sequence[Span], begin: Callable[[float], None], end: Callable[[], None]) -> None:
        for began, ended in spans:
            self._at(began, partial(begin, ended))
            if ended < math.inf:
                self._at(ended, end)

    def _at(self, seconds: float, act: Callable[[], None]) -> None:
        if seconds > 0:
            self._env.timeout(seconds).callbacks.append(lambda _: act())
        else:
            act()

    def _crash_of(self, client: int) -> Callable[[float], None]:
        def crash(until: float) -> None:
            self._log.write(self._env.now, "failure", client=client, item="crash")
            self._network.end_process(f"client/{client}")
            self._presence.crash(client, until)

        return crash

    def _restart_of(self, client: int) -> Callable[[], None]:
        def restart() -> None:
            self._log.write(self._env.now, "failure", client=client, item="restart")
            self._network.begin_process(f"client/{client}")
            self._presence.restart(client)

        return restart

    def _outage_of(self, link: int) -> Callable[[float], None]:
        def outage(_: float) -> None:
            self._write_link(link, "outage")
            self._network.begin_outage(link)

        return outage

    def _repair_of(self, link: int) -> Callable[[], None]:
        def repair() -> None:
            self._write_link(link, "repair")
            self._network.end_outage(link)

        return repair

    def _write_link(self, link: int, item: str) -> None:
        source, target = self._network.topology.ends(link)
        self._log.write(self._env.now, "failure", item=item, source=str(source), target=str(target))
