"""Emulates many small scenarios with training, and compares each round with its prediction.

    python tests/emulation/campaign.py FOLDER [NAME...]

writes the runs FOLDER/NAME and FOLDER/NAME-predicted of each scenario, skips those that are there, and prints their
comparisons. It takes about eight minutes for all, and its seconds mean nothing while other programs run.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from edgefl.cli import main as command_line
from edgefl.emulation.emulate import emulate
from edgefl.record import RunPaths
from edgefl.scenario.loading import check

STAR = {"kind": "star", "server": {"down": "40 Mbit/s", "up": "20 Mbit/s"}, "latency": "0 ms"}
CELLS = {
    "kind": "cells",
    "cells": 2,
    "backhaul": {"down": "25 Mbit/s", "up": "12 Mbit/s"},
    "server": {"down": "40 Mbit/s", "up": "20 Mbit/s"},
    "latency": "0 ms",
}
LINKS = {"wifi": {"down": {"kind": "uniform", "low": "5 Mbit/s", "high": "15 Mbit/s"}, "up": "4 Mbit/s"}}
REDRAWN = {"wifi": {**LINKS["wifi"], "redraw": "1 round"}}
CHANGING = {
    "wifi": {
        "down": {"kind": "process", "quantiles": {"5": "4 Mbit/s", "95": "16 Mbit/s"}, "step": "0.25 s"},
        "up": {"kind": "process", "quantiles": {"5": "2 Mbit/s", "95": "6 Mbit/s"}, "step": "0.25 s"},
    }
}
FEDADC = [
    {"method": "fedadc", "overlap": False, "as": "fedadc"},
    {"method": "fedadc", "overlap": True, "as": "fedadc-overlap"},
]
FEDBR = [
    {"method": "fedbr", "scheduler": {"kind": "gmbs"}, "as": "fedbr-gmbs"},
    {"method": "fedbr", "scheduler": {"kind": "fixed", "alpha": 2}, "as": "fedbr-fixed"},
]
CODECS = ["fedavg", {"method": "fedavg", "codec": {"up": {"kind": "quantise", "bits": 8}}, "as": "fedavg-8bit"}]
ASYNCHRONOUS = {"kind": "asynchronous", "buffer": 2, "concurrency": 4}


def later(topology: dict[str, Any], milliseconds: int) -> dict[str, Any]:
    """A topology with this latency."""
    return {**topology, "latency": f"{milliseconds} ms"}


def scenario(name: str, **changes: Any) -> tuple[str, dict[str, Any]]:
    """A scenario by its name; ``cohort``, ``rounds``, ``queue``, ``topology`` and ``links`` stand for places inside."""
    queue = changes.pop("queue", "fair")
    network = {"topology": changes.pop("topology", STAR), "links": changes.pop("links", LINKS)}
    training = {
        "rounds": changes.pop("rounds", 4),
        "cohort": changes.pop("cohort", 4),
        "local": {"epochs": 1, "batch": 32, "lr": 0.05},
    }
    return name, {
        "name": name,
        "seeds": [0],
        "data": {"name": "digits", "clients": 10, "images": 1200},
        "model": {"name": "cnn", "norm": "group"},
        "training": training,
        "fleet": [
            {"profile": "raspberry-pi-4", "share": 0.5, "link": "wifi"},
            {"profile": "raspberry-pi-5", "share": 0.5, "link": "wifi"},
        ],
        "network": {**network, "transport": {"queue": queue}},
        "methods": ["fedavg"],
        "targets": [0.5],
        **changes,
    }


def scenarios() -> dict[str, dict[str, Any]]:
    """All scenarios of the campaign."""
    return dict(
        [
            scenario("star"),
            scenario("star-8", cohort=8),
            scenario("star-10", cohort=10),
            scenario("star-redraw", cohort=6, links=REDRAWN),
            scenario("star-changing", cohort=6, links=CHANGING),
            scenario("star-20ms", topology=later(STAR, 20)),
            scenario("star-20ms-10", topology=later(STAR, 20), cohort=10),
            scenario("star-50ms-changing", topology=later(STAR, 50), cohort=6, links=CHANGING),
            scenario("cells", topology=CELLS, cohort=6),
            scenario("cells-20ms", topology=later(CELLS, 20), cohort=8),
            scenario("hierarchical", topology=CELLS, cohort=6, protocol={"kind": "hierarchical"}),
            scenario("hierarchical-10ms", topology=later(CELLS, 10), cohort=8, protocol={"kind": "hierarchical"}),
            scenario("deadline", cohort=8, protocol={"kind": "synchronous", "deadline": "2.2 s"}),
            scenario(
                "deadline-partial", cohort=6, protocol={"kind": "synchronous", "deadline": "2 s", "late": "partial"}
            ),
            scenario("asynchronous", protocol=ASYNCHRONOUS),
            scenario("asynchronous-20ms", topology=later(STAR, 20), links=CHANGING, protocol=ASYNCHRONOUS),
            scenario("fedadc", cohort=6, methods=FEDADC),
            scenario("fedadc-20ms", topology=later(STAR, 20), cohort=4, methods=FEDADC),
            scenario("fedbr", cohort=6, methods=FEDBR, rounds=6),
            scenario("fedbr-20ms", topology=later(STAR, 20), links=REDRAWN, methods=FEDBR, rounds=6),
            scenario("codec", cohort=6, methods=CODECS),
            scenario("codec-cells", topology=CELLS, cohort=6, methods=CODECS),
            scenario("fedalign", cohort=6, methods=["fedavg", "fedalign"]),
            scenario("four-methods", cohort=4, methods=[*FEDADC, *FEDBR]),
            scenario("fifo", cohort=6, queue="fifo", rounds=12),
            scenario("fifo-10", cohort=10, queue="fifo", rounds=12),
            scenario("fifo-20ms", topology=later(STAR, 20), cohort=6, queue="fifo", rounds=12),
            scenario("fifo-cells", topology=CELLS, cohort=8, queue="fifo", rounds=12),
        ]
    )


def main(folder: Path, names: list[str]) -> None:
    """Emulate what is missing, and print the comparisons of all."""
    for name in names or scenarios():
        if not RunPaths(folder / name).summary.exists():
            emulate(check(scenarios()[name]), out=folder / name)
        print(f"## {name}", flush=True)
        command_line(["report", str(folder / name), "--against", str(folder / f"{name}-predicted")])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
