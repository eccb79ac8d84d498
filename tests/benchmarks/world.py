"""The simulation without training: flows that share links, large rounds, a large fleet.

``python tests/benchmarks/world.py [--quick] [--json]``. The event rate of SimPy alone is measured in turn with it, in
one process. It is the upper limit of a simulation that uses SimPy.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import sys
import tempfile
from collections.abc import Generator, Sequence
from copy import copy
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from edgefl.experiment.run import run
from edgefl.network.flow_network import FlowNetwork
from edgefl.network.tree import TreeLinks
from edgefl.randomness import generator
from edgefl.scenario.scenario import Scenario
from edgefl.simulation.run import only_new_objects_collected
from edgefl.validation import validated

_BYTES = 2_000_000
"""The size of a transfer to or from a client."""


class Counted(simpy.Environment):
    """A clock that counts its scheduled events."""

    @property
    def events(self) -> int:
        """The number of scheduled events; SimPy numbers them from 0."""
        return next(copy(self._eid))


def bare_events(timeouts: int, pending: int) -> float:
    """Events per second of SimPy alone: processes that start one timeout after another, ``pending`` at any time."""
    env = Counted()
    delays = generator(0, "bench timeouts").random(timeouts).tolist()

    def chain(own: list[float]) -> Generator[simpy.Event, object, None]:
        for delay in own:
            yield env.timeout(delay)

    for first in range(min(pending, timeouts)):
        env.process(chain(delays[first::pending]))
    start = perf_counter()
    with only_new_objects_collected():
        env.run()
    return env.events / (perf_counter() - start)


def _links(clients: int, cells: int = 0, server: float = 1e7) -> TreeLinks:
    """Clients of 4 to 28 Mbit/s behind a server of 10 Mbit/s for each, and optional cells of 12 Mbit/s for each client.

    So some flows are limited by the shared links and some by their own; with a server below 4 Mbit/s for each client,
    all are limited by the server's link.
    """
    draws = generator(0, "bench links", clients)
    return TreeLinks(
        server=(clients * server, clients * server),
        down=draws.uniform(4e6, 28e6, clients),
        up=draws.uniform(4e6, 28e6, clients),
        latency=0.02,
        backhaul=[(clients / cells * 1.2e7,) * 2] * cells if cells else (),
        cell=[client % cells for client in range(clients)] if cells else None,
    )


def steady_flows(concurrent: int, transfers: int) -> dict[str, float]:
    """``transfers`` downloads, ``concurrent`` at any time: a finished client starts again after the latency."""
    env = Counted()
    network = FlowNetwork(env, _links(concurrent))
    sizes: NDArray[np.float64] = generator(0, "bench sizes").uniform(0.5, 1.5, transfers) * _BYTES
    left = iter(sizes.tolist())

    def client(number: int) -> Generator[simpy.Event, object, None]:
        for size in left:
            yield network.transfer("server", f"client/{number}", size)

    for number in range(concurrent):
        env.process(client(number))
    start = perf_counter()
    with only_new_objects_collected():
        env.run()
    seconds = perf_counter() - start
    return {"events_per_second": env.events / seconds, "flows_per_second": transfers / seconds, "seconds": seconds}


def one_round(clients: int, held_back_by: str, cells: int = 0, server: float = 1e7) -> dict[str, Any]:
    """All clients download at once, compute for individual seconds, and upload; measures the network.

    Args:
        clients: the number of clients.
        held_back_by: the description of the links in the figures.
        cells: the number of backhauls; 0 for none.
        server: bit/s of the server's link for each client.
    """
    env = Counted()
    network = FlowNetwork(env, _links(clients, cells, server))
    computing = generator(0, "bench computing", clients).uniform(1.0, 10.0, clients).tolist()

    def life(number: int) -> Generator[simpy.Event, object, None]:
        yield network.transfer("server", f"client/{number}", _BYTES)
        yield env.timeout(computing[number])
        yield network.transfer(f"client/{number}", "server", _BYTES)

    start, used = perf_counter(), process_time()
    with only_new_objects_collected():
        for number in range(clients):
            env.process(life(number))
        env.run()
    seconds, cpu_seconds = perf_counter() - start, process_time() - used
    return {
        "clients": clients, "cells": cells, "held_back_by": held_back_by, "seconds": seconds,
        "cpu_seconds": cpu_seconds, "flows_per_second": 2 * clients / seconds,
        "events_per_second": env.events / seconds,
    }  # fmt: skip


def fleet_scenario(clients: int, cohort: int, rounds: int) -> Scenario:
    """A fleet of three kinds of devices over links that are redrawn every ten rounds, on synthetic images."""
    capacity = {"kind": "uniform", "low": "40 Mbit/s", "high": "280 Mbit/s"}
    devices = {"raspberry-pi-4": 0.5, "jetson-nano": 0.25, "phone-mid-range": 0.25}
    return validated(
        Scenario,
        {
            "name": "bench",
            "data": {
                "name": "synthetic", "shape": [1, 8, 8], "classes": 10, "train": 10 * clients, "test": 100,
                "clients": clients, "partition": {"kind": "iid"},
            },
            "model": {"name": "cnn", "width": 4},
            "training": {"rounds": rounds, "cohort": cohort, "local": {"epochs": 1, "batch": 5}},
            "fleet": [{"profile": name, "share": share, "link": "5g"} for name, share in devices.items()],
            "network": {
                "topology": {"kind": "star", "server": {"down": "1 Gbit/s", "up": "1 Gbit/s"}, "latency": "20 ms"},
                "links": {"5g": {"down": capacity, "up": capacity, "redraw": "10 rounds"}},
            },
            "methods": ["fedavg"],
            "stop": "rounds",
        },
    )  # fmt: skip


def fleet_rounds(clients: int, cohort: int, rounds: int) -> dict[str, float]:
    """A whole run without training: selection, transfers, computing, joules, and the log on disk."""
    scenario = fleet_scenario(clients, cohort, rounds)
    with tempfile.TemporaryDirectory() as folder:
        start, used = perf_counter(), process_time()
        written = run(scenario, out=Path(folder) / "run", train=False)
        seconds, cpu_seconds = perf_counter() - start, process_time() - used
        size = sum(file.stat().st_size for file in written.rglob("*") if file.is_file())
    return {
        "clients": clients, "cohort": cohort, "rounds": rounds, "seconds": seconds, "cpu_seconds": cpu_seconds,
        "milliseconds_per_round": 1e3 * seconds / rounds, "written_bytes": size, "peak_bytes": peak_bytes(),
    }  # fmt: skip


def peak_bytes() -> int:
    """The peak memory of this process so far, including imports."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def bench_world(*, quick: bool = False) -> dict[str, Any]:
    """All figures; ``quick`` reduces all sizes to check that the benchmark runs.

    Returns:
        ``steady``, ``rounds`` and ``fleet`` from the functions above; each entry of the first also has the events per
        second of SimPy alone, under ``bare_events_per_second``.
    """
    small = 100 if quick else 1
    steady = []
    for concurrent in (100, 1_000, 10_000):
        many = max(concurrent // small, 2)
        gc.collect()
        bare = bare_events(200_000 // small, many)
        found = steady_flows(many, max(3 * many, 10_000 // small))
        steady.append({"concurrent": many, **found, "bare_events_per_second": bare})
    gc.collect()
    clients, cells = 10_000 // small, 100 // min(small, 50)
    rounds = [
        one_round(clients, "the server's link", server=3e6),
        one_round(clients, "the server's link or its own"),
        one_round(clients, f"{cells} cells' backhauls, the server's link or its own", cells),
    ]
    gc.collect()
    fleet = fleet_rounds(131_072 // small, 100 // min(small, 10), 1_000 // small)
    return {"steady": steady, "rounds": rounds, "fleet": fleet}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a short run that checks that everything works")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(arguments)
    found = bench_world(quick=given.quick)
    if given.json:
        print(json.dumps(found, indent=2))
        return
    for row in found["steady"]:
        events, bare = row["events_per_second"], row["bare_events_per_second"]
        print(
            f"{row['concurrent']:,} concurrent flows: {row['flows_per_second']:,.0f} flows/s, {events:,.0f} events/s, "
            f"{events / bare:.2f} of the {bare:,.0f} of SimPy alone"
        )
    for row in found["rounds"]:
        seconds = f"{row['seconds']:.2f} s ({row['cpu_seconds']:.2f} s of one core)"
        print(f"one round of {row['clients']:,} clients, each limited by {row['held_back_by']}: {seconds}")
    fleet = found["fleet"]
    print(
        f"{fleet['rounds']:,} rounds of {fleet['cohort']} of {fleet['clients']:,} clients without training: "
        f"{fleet['seconds']:.1f} s ({fleet['cpu_seconds']:.1f} s of one core), peak "
        f"{fleet['peak_bytes'] / 2**20:,.0f} MiB with imports, {fleet['written_bytes'] / 1e6:.1f} MB written"
    )


if __name__ == "__main__":
    main()
