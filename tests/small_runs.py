"""A scenario that trains in seconds: eight clients, a tiny model, synthetic images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgefl.record.events import Event, Listener
from edgefl.rerun.replay import Replay

SMALL: dict[str, Any] = {
    "name": "small",
    "seeds": [0],
    "data": {
        "name": "synthetic",
        "shape": [1, 8, 8],
        "classes": 4,
        "train": 320,
        "test": 80,
        "clients": 8,
        "partition": {"kind": "shards", "s": 2},
    },
    "model": {"name": "cnn", "width": 2},
    "training": {"rounds": 4, "cohort": 3, "local": {"epochs": 1, "batch": 16, "lr": 0.1}},
    "fleet": [
        {"profile": "raspberry-pi-4", "share": 0.5, "link": "5g"},
        {"profile": "jetson-nano", "share": 0.5, "link": "5g"},
    ],
    "network": {
        "topology": {"kind": "star", "server": {"down": "100 Mbit/s", "up": "100 Mbit/s"}, "latency": "20 ms"},
        "links": {
            "5g": {
                "down": {"kind": "uniform", "low": "4 Mbit/s", "high": "28 Mbit/s"},
                "up": {"kind": "uniform", "low": "4 Mbit/s", "high": "28 Mbit/s"},
                "redraw": "2 rounds",
            }
        },
    },
    "methods": ["fedavg"],
    "targets": [0.3],
    "stop": "rounds",
}

CELLS: dict[str, Any] = {
    "kind": "cells",
    "cells": 2,
    "server": {"down": "100 Mbit/s", "up": "100 Mbit/s"},
    "backhaul": {"down": "40 Mbit/s", "up": "40 Mbit/s"},
    "latency": "20 ms",
}


OUTAGES: dict[str, Any] = {
    "kind": "process", "quantiles": {0: "0.05 Mbit/s", 100: "0.2 Mbit/s"}, "step": "50 ms",
    "outage_every": "500 ms", "outage_length": "400 ms",
}  # fmt: skip
TIMEOUTS = {"connection": "150 ms", "retries": 2, "first_wait": "100 ms", "resume": "ranges", "chunk": "200 B"}
FAILING = {"network__links": {"5g": {"down": OUTAGES, "up": OUTAGES}}, "network__transport": {"timeouts": TIMEOUTS}}
TCP: dict[str, Any] = {
    "kind": "tcp", "packet_bytes": 100, "initial_window": 2, "keep_alive": "1 s", "handshake": "tls_0rtt",
    "queue": "fifo",
}  # fmt: skip
ACCIDENTS = {
    "fleet": [
        {"profile": "raspberry-pi-4", "share": 0.5, "link": "5g", "dropout": 0.3},
        {"profile": "jetson-nano", "share": 0.5, "link": "5g", "overrides": {"compute": {"jitter": 0.3}}},
    ],
    "network__links": {"5g": {"down": {"kind": "uniform", "low": "0.5 Mbit/s", "high": "4 Mbit/s"}, "up": "1 Mbit/s"}},
}
LOCAL_PART = {
    "model": {"name": "cnn", "width": 2, "norm": "batch", "local": ["conv1.1", "conv2.1"]},
    "data__test": "partitioned",
    "methods": ["fedavg", {"method": "fedbr", "scheduler": {"kind": "fixed", "alpha": 2}}],
}
LEVELS = {
    "methods": ["heterofl", {"method": "depthfl", "levels": [1, 0.5]}],
    "fleet__0__capacity": 0.5, "fleet__1__capacity": 1,
}  # fmt: skip


class Rows(Listener):
    """Keeps the rows of the log."""

    def __init__(self) -> None:
        self.rows: list[Event] = []

    def events(self, rows):
        self.rows.extend(rows)


class Advice(Listener):
    """Keeps the advice."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def advised(self, advice):
        self.texts.append(advice)


class Stop(Listener):
    """Ctrl-C at the end of the n-th round, whichever run it belongs to."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds

    def round_ended(self, row):
        self._rounds -= 1
        if self._rounds == 0:
            raise KeyboardInterrupt


def tree(folder: Path) -> dict[str, bytes]:
    """Every file of a run directory."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def replay(run: Path, changes: Any, out: Path, methods: list[str] | None = None) -> Path:
    """Replay a finished run once."""
    return Replay(run, methods).on(changes, out)
