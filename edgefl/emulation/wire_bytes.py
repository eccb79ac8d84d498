"""The bytes that the clients' interfaces carry in a run, and how many of them no transfer delivered."""

from __future__ import annotations

import time
from collections.abc import Mapping

from edgefl.emulation.real_links import RealLinks
from edgefl.emulation.wiring import Carried, Pair, Wiring
from edgefl.record.emulation import WireBytes

READING_SECONDS = 0.1
MOST_READINGS = 30
"""For so long packets may still be on their way when the last transfer has ended."""


class Meter:
    """Reads the counters of links and connections when the clock starts, and at the end.

    Args:
        real_links: the links and processes.
    """

    def __init__(self, real_links: RealLinks) -> None:
        self._links = real_links
        self._carried: dict[Pair, Carried] = {}
        self._sent: dict[Pair, int] = {}

    def begin(self) -> None:
        """What has been carried so far does not count."""
        self._carried, self._sent = self._links.counters(), self._links.sent_in_addition()

    def read(self) -> WireBytes:
        """What has been carried since then; waits until what aborted transfers left behind has passed the links."""
        now = self._links.counters()
        for _ in range(MOST_READINGS):
            time.sleep(READING_SECONDS)
            before, now = now, self._links.counters()
            if now == before:
                break
        none = Carried(0, 0)
        carried = {ends: each.since(self._carried.get(ends, none)) for ends, each in now.items()}
        sent = {pair: count - self._sent.get(pair, 0) for pair, count in self._links.sent_in_addition().items()}
        return wire_bytes(self._links.wiring, carried, sent)


def wire_bytes(wiring: Wiring, carried: Mapping[Pair, Carried], sent: Mapping[Pair, int]) -> WireBytes:
    """The bytes on the clients' interfaces.

    What TCP sends beyond what transfers deliver passes a client's interface, unless a queue before it has lost it.

    Args:
        wiring: the links.
        carried: what each link has carried and lost.
        sent: what was sent in addition from one node to another.
    """
    down = {link.ends for pair in wiring.routes if pair[1].startswith("client/") for link in wiring.route(*pair)}
    own = {"down": {ends for ends in carried if ends[1].startswith("client/")}}
    own["up"] = {ends for ends in carried if ends[0].startswith("client/")}
    before = {"down": down, "up": own["up"]}
    end = {"down": 1, "up": 0}
    figures = {}
    for name, place in end.items():
        figures[name] = sum(carried[ends].sent for ends in own[name])
        more = sum(count for pair, count in sent.items() if pair[place].startswith("client/"))
        figures[f"more_{name}"] = max(more - sum(carried[ends].lost for ends in before[name]), 0)
    return WireBytes(**figures)
