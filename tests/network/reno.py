"""TCP Reno, packet by packet: an oracle for the fluid, written from RFC 5681, RFC 6582 (NewReno) and RFC 6298."""

from __future__ import annotations

import heapq
import math
import random


def reno_seconds(
    packets: int,
    *,
    round_trip: float,
    packets_per_second: float = 1e9,
    loss: float = 0.0,
    initial_window: float = 10.0,
    every: int = 1,
    least_timeout: float = 1.0,
    seed: int = 0,
) -> float:
    """The seconds from the first packet sent to the last one received.

    One sender with packets to send and one receiver, a link with a rate and an unlimited queue, a constant delay after
    it, and independent losses of packets. Acknowledgements are never lost; one is sent for ``every`` packets in order
    (or 0.2 s after a packet), and at once for a packet out of order or one that fills a gap.
    """
    return _Reno(packets, round_trip, packets_per_second, loss, initial_window, every, least_timeout, seed).run()


class _Reno:
    def __init__(self, packets, round_trip, rate, loss, window, every, least_timeout, seed):
        self.packets, self.round_trip, self.rate, self.loss, self.every = packets, round_trip, rate, loss, every
        self.least_timeout = least_timeout
        self.random = random.Random(seed)
        self.events: list[tuple[float, int, str, int]] = []
        self.order = 0
        self.now = self.free = self.finished = 0.0
        # The sender.
        self.window, self.threshold = window, math.inf
        self.acknowledged = self.next = self.highest = self.duplicates = 0
        self.recovering, self.recover = False, -1
        self.timeout = max(least_timeout, round_trip)
        self.timer = 0
        # The receiver.
        self.received: set[int] = set()
        self.expected = self.unacknowledged = self.delayed = 0

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
        if self.random.random() >= self.loss:
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
            self.highest = max(self.highest, self.next)

    def arrive(self, number: int) -> None:
        gap = bool(self.received) or number != self.expected
        if number >= self.expected:
            self.received.add(number)
        while self.expected in self.received:
            self.received.remove(self.expected)
            self.expected += 1
        self.finished = self.now
        self.unacknowledged += 1
        if gap or self.unacknowledged >= self.every:
            self.acknowledge(0)
        else:
            self.order += 1
            self.delayed = self.order
            self.at(self.now + 0.2, "acknowledge", self.delayed)

    def acknowledge(self, delayed: int) -> None:
        if delayed in (0, self.delayed) and self.unacknowledged:
            self.unacknowledged, self.delayed = 0, -1
            self.at(self.now + self.round_trip / 2, "hear", self.expected)

    def hear(self, expected: int) -> None:
        flight = self.next - self.acknowledged
        if expected > self.acknowledged:
            self.timeout = max(self.least_timeout, self.round_trip)
            newly, self.acknowledged = expected - self.acknowledged, expected
            self.next = max(self.next, expected)
            self.set_timer()
            if self.recovering and expected <= self.recover:  # a partial acknowledgement (RFC 6582, section 3.2)
                self.window = max(self.window - newly + 1, 1.0)
                self.send(expected)
            elif self.recovering:
                self.recovering, self.window, self.duplicates = False, self.threshold, 0
            else:
                self.duplicates = 0
                self.window += 1.0 if self.window < self.threshold else 1.0 / self.window
        elif flight > 0:
            self.duplicates += 1
            if self.recovering:
                self.window += 1.0
            elif self.duplicates == 3 and expected > self.recover:
                self.threshold = max(flight / 2.0, 2.0)
                self.recovering, self.recover = True, self.highest - 1
                self.window = self.threshold + 3.0
                self.send(expected)
        self.fill()

    def expire(self, timer: int) -> None:
        if timer == self.timer and self.acknowledged < self.packets:
            self.threshold = max((self.next - self.acknowledged) / 2.0, 2.0)
            self.window, self.duplicates, self.recovering = 1.0, 0, False
            self.recover = self.highest - 1
            self.next = self.acknowledged
            self.timeout = min(2.0 * self.timeout, 60.0)
            self.set_timer()
            self.fill()
