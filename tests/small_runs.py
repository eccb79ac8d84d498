"""A scenario that trains in seconds: eight clients, a tiny model, synthetic images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgefl.record.events import Event
from edgefl.record.listener import Listener

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


class Rows(Listener):
    """Keeps the rows of the log."""

    def __init__(self) -> None:
        self.rows: list[Event] = []

    def events(self, rows):
        self.rows.extend(rows)


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
