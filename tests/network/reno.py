"""TCP, packet by packet and without losses: an oracle for the fluid, written from RFC 5681 and RFC 6298."""

from __future__ import annotations

import heapq
import math


def reno_seconds(
    packets: int,
    *,
    round_trip: float,
    packets_per_second: float = 1e9,
    initial_window: float = 10.0,
    least_timeout: float = 1.0,
) -> float:
    """The seconds from the first packet sent to the last one received.

    One sender with packets to send and one receiver, a link with a rate and an unlimited queue, and a constant delay
    after it. Each packet is acknowledged at once.
    """
    return _Reno(packets, round_trip, packets_per_second, initial_window, least_timeout).run()


class _Reno:
    def __init__(self, packets, round_trip, rate, window, least_timeout):
        self.packets, self.round_trip, self.rate = packets, round_trip, rate
        self.least_timeout = least_timeout
        self.events: list[tuple[float, int, str, int]] = []
        self.order = 0
        self.now = self.free = self.finished = 0.0
        # The sender.
        self.window, self.threshold = window, math.inf
        self.acknowledged = self.next = 0
        self.timeout = max(least_timeout, round_trip)
        self.timer = 0
        # The receiver.
        self.received: set[int] = set()
        self.expected = 0

    def at(self, seconds: float, kind: str, what: int) -> None:
        self.order += 1
        heapq.heappush(self.events, (seconds, self.order, kind, what))

    def run(self) -> float:
        self.fill()
        while self.expected < self.packets:
            self.now, _, kind, what = heapq.heappop(self.events)
            getattr(self, kind)(what)
        return self.finished

    def send(self, number: int) -> None:
        self.free = max(self.free, self.now) + 1.0 / self.rate
        self.at(self.free + self.round_trip / 2, "arrive", number)
        if number == self.acknowledged or self.timer == 0:
            self.set_timer()

    def set_timer(self) -> None:
        self.order += 1
        self.timer = self.order
        self.at(self.now + self.timeout, "expire", self.timer)

    def fill(self) -> None:
        while self.next < min(self.packets, self.acknowledged + math.floor(self.window)):
            self.send(self.next)
            self.next += 1

    def arrive(self, number: int) -> None:
        if number >= self.expected:
            self.received.add(number)
        while self.expected in self.received:
            self.received.remove(self.expected)
            self.expected += 1
        self.finished = self.now
        self.at(self.now + self.round_trip / 2, "hear", self.expected)

    def hear(self, expected: int) -> None:
        if expected > self.acknowledged:
            self.timeout = max(self.least_timeout, self.round_trip)
            self.acknowledged, self.next = expected, max(self.next, expected)
            self.set_timer()
            self.window += 1.0 if self.window < self.threshold else 1.0 / self.window
        self.fill()

    def expire(self, timer: int) -> None:
        if timer == self.timer and self.acknowledged < self.packets:
            self.threshold = max((self.next - self.acknowledged) / 2.0, 2.0)
            self.window = 1.0
            self.next = self.acknowledged
            self.timeout = min(2.0 * self.timeout, 60.0)
            self.set_timer()
            self.fill()
