"""The event log: one row for everything that happens, in the order in which it happens.

Every figure that edgefl reports is a sum over these rows, and ``edgefl verify`` checks them against the laws of the
world. Rows go to a sink in chunks, so that a long run needs no more memory than a short one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, NamedTuple

NOBODY = -1
"""Stands in the columns ``client``, ``flow`` and ``round`` where a row concerns none."""


class Event(NamedTuple):
    """One row of the log.

    Attributes:
        time: virtual seconds since the start.
        kind: what happened, see the table in ``docs/time-model.md``.
        round: the round it belongs to, from 1; for prefetches the round that they are meant for.
        client: the client concerned, or -1 for the server and the network.
        item: what was sent, computed, decided or reached, by name.
        flow: the number of the transfer.
        source, target: nodes of the topology.
        bytes: of a transfer: its size at the start, what was delivered at its end.
        seconds: how long it took.
        flops: floating-point operations executed.
        joules: energy that the device drew for it.
        value: the number that the kind is about (capacity in bit/s, accuracy, alpha, limit).
        detail: further facts as JSON.
    """

    time: float
    kind: str
    round: int = NOBODY
    client: int = NOBODY
    item: str = ""
    flow: int = NOBODY
    source: str = ""
    target: str = ""
    bytes: float = 0.0
    seconds: float = 0.0
    flops: float = 0.0
    joules: float = 0.0
    value: float = 0.0
    detail: str = ""


_tuple = tuple.__new__

Sink = Callable[[list[Event]], None]


class EventLog:
    """Collects rows and hands them on in chunks.

    Args:
        sink: takes each full chunk, in order; ``None`` keeps all rows in :attr:`rows`.
        chunk: rows in a chunk.
    """

    def __init__(self, sink: Sink | None = None, *, chunk: int = 32_768) -> None:
        self.rows: list[Event] = []
        self._sink = sink
        self._chunk = chunk if sink is not None else math.inf

    def write(
        self,
        time: float,
        kind: str,
        round: int = NOBODY - 1,
        client: int = NOBODY,
        *,
        item: str = "",
        flow: int = NOBODY,
        source: str = "",
        target: str = "",
        bytes: float = 0.0,
        seconds: float = 0.0,
        flops: float = 0.0,
        joules: float = 0.0,
        value: float = 0.0,
        detail: str = "",
    ) -> None:
        """Append one row, whose columns :class:`Event` explains.

        Only ``round`` counts as the world does, from 0: its number is the version that it trains from.
        """
        rows, number = self.rows, round + 1
        # The tuple at once, without the call that a named tuple puts before it.
        rows.append(
            _tuple(
                Event,
                (time, kind, number, client, item, flow, source, target, bytes, seconds, flops, joules, value, detail),
            )
        )
        if len(rows) >= self._chunk:
            self.flush()

    def flush(self) -> None:
        """Hand the rows that wait to the sink."""
        if self._sink is not None and self.rows:
            self._sink(self.rows)
            self.rows = []


def detail(**facts: Any) -> str:
    """Facts as JSON text, the same on every machine; floats exact, non-finite ones as text.

    >>> detail(loss=0.1, distance=float("nan"))
    '{"loss": 0.1, "distance": "nan"}'
    """
    return "{" + ", ".join([f'"{key}": {_text(value)}' for key, value in facts.items()]) + "}"


def _text(value: Any) -> str:
    if isinstance(value, float):
        # As JSON has it; the encoder would do the same, after ten times as long a preparation.
        return float.__repr__(value) if math.isfinite(value) else f'"{value!r}"'
    return json.dumps(value)
