"""Transfers over the real links of a plan, without a world, for tests and measurements."""

import tempfile
import time
from pathlib import Path

from edgefl.emulation.real_links import made_links
from edgefl.emulation.wiring import LinkSettings


def carry(wiring, phases, settings=None):
    """For each phase the seconds at which its transfers end, and what links have carried by then, by their ends.

    A phase: {"transfers": [[source, target, bytes, at]], "changes": [[at, source, target, bits_per_second]]}; times in
    seconds of the scenario, from the phase's beginning.
    """
    settings, found = settings or LinkSettings(), []
    with (
        tempfile.TemporaryDirectory() as folder,
        made_links(wiring, settings, folder=Path(folder), content=bytes(1 << 16)) as links,
    ):
        links.open_connections(20.0)
        for phase in phases:
            before, start = links.counters(), time.monotonic() + 0.1
            acts = [
                (at, links.send, (number, source, target, bytes, None))
                for number, (source, target, bytes, at) in enumerate(phase["transfers"])
            ]
            acts += [
                (at, links.set_capacities, ({(source, target): float(rate)},))
                for at, source, target, rate in phase.get("changes", ())
            ]
            for at, act, arguments in sorted(acts, key=lambda each: each[0]):
                time.sleep(max(start + at * settings.dilation - time.monotonic(), 0.0))
                act(*arguments)
            reports = [links.nodes.wait_for("arrived", number, 60.0) for number in range(len(phase["transfers"]))]
            carried = {ends: count - before[ends] for ends, count in links.counters().items()}
            ends = [(report["at"] - start) / settings.dilation for report in reports]
            found.append({"ends": ends, "carried": carried})
    return found
