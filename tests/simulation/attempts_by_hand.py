"""One transfer over one link that fails at times, attempt by attempt: a second derivation of time-outs and retries."""

from __future__ import annotations

import math
from typing import NamedTuple

_TIE = 1e-7


class Tie(Exception):  # noqa: N818
    """Two things happen at one moment: rounding would decide which is first."""


class Told(NamedTuple):
    """When the transfer ended, whether it failed, when its attempts broke, and what they had delivered and lost."""

    ended: float
    failed: bool
    breaks: list[float]
    sent: int
    lost: int


def transfer(size, bytes_per_second, latency, spans, timeouts):
    """Send ``size`` bytes from 0 s on, over a link that is down during ``spans``, without jitter."""
    began, kept, sent, lost, breaks = 0.0, 0, 0, 0, []
    while True:
        ended, delivered, whole = _attempt(began, size - kept, bytes_per_second, latency, spans, timeouts)
        sent += delivered
        if whole:
            return Told(ended, False, breaks, sent, lost)
        breaks.append(ended)
        total = kept + delivered
        grain = timeouts.chunk or 1
        kept = math.floor(total / grain) * int(grain) if timeouts.resume == "ranges" else 0
        lost += total - kept
        if len(breaks) > timeouts.retries:
            return Told(ended, True, breaks, sent, lost)
        wait = min(timeouts.first_wait * timeouts.factor ** (len(breaks) - 1), timeouts.longest_wait)
        began = ended + wait


def _attempt(began, size, bytes_per_second, latency, spans, timeouts):
    """When an attempt ends, the whole bytes that it delivers, and whether these are all."""
    due = math.inf if timeouts.transfer is None else began + timeouts.transfer
    patience = math.inf if timeouts.connection is None else timeouts.connection
    edges = sorted({edge for span in spans for edge in span if edge > began} | {began + latency, math.inf})
    now, moved, last = began, 0.0, began
    for edge in edges:
        moving = now >= began + latency and not any(down <= now < up for down, up in spans)
        done = now + (size - moved) / bytes_per_second if moving else math.inf
        expires = min(due, math.inf if moving else last + patience)
        first = min(edge, done, expires)
        if sum(abs(each - first) < _TIE for each in (edge, done, expires) if each < math.inf) > 1:
            raise Tie
        if moving:
            moved += bytes_per_second * ((size - moved) / bytes_per_second if first == done else first - now)
            last = first
        if first == done:
            return first, size, True
        if first == expires:
            return first, math.floor(moved + 1e-6), False
        now = edge
    raise AssertionError("the link is never up again")
