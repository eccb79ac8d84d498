"""The command line of the measuring script, and the file that it writes."""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import platform
from functools import partial
from typing import Any, Callable, Collection, Dict, List, Optional, Sequence

import torch

from .chains import chains
from .steps import STEP, steps
from .timing import LEAST_BLOCK_SECONDS, Case, clock_for, fastest_product, memory_bytes, processor, time_cases

FORMAT = "edgefl device measurement"
VERSION = 2
"""Must change whenever a case of the same name executes something else."""


def cases() -> Dict[str, Case]:
    """Return all cases by name; whole steps first, because the fit depends on them most."""
    return {**steps(), **chains()}


LEAST_STEPS, LEAST_CHAINS = 4, 20
"""The smallest numbers that a fit can use."""


def needed(wanted: Collection[str]) -> List[str]:
    """Return the cases that a fit needs: the smallest step of each network, chains of all kinds, and what checks it.

    The chains are evenly spaced in the list, so that every family of layers has some, and at an odd distance, so that
    forward passes alternate with backward ones. There are spare ones: some may not fit into the memory.
    """
    known = cases()
    own = [name for name in known if name in wanted]
    checks = [name for name in wanted if name not in known]
    smallest: Dict[str, str] = {}
    for name in own:
        if name.startswith(STEP):
            smallest.setdefault(name.partition(",")[0], name)
    others = [name for name in own if name.startswith(STEP) and name not in smallest.values()]
    least = [*smallest.values(), *others[: max(0, LEAST_STEPS - len(smallest))]]
    layers = [name for name in own if not name.startswith(STEP)]
    return [*least, *checks, *layers[:: 2 * len(layers) // (3 * LEAST_CHAINS) | 1]]


def measurement(
    seconds: float,
    threads: int,
    say: Callable[[str], None],
    wanted: Dict[str, Case],
    least_block: float = LEAST_BLOCK_SECONDS,
) -> Dict[str, Any]:
    """Measure this device for about so many seconds, and return the data that `edgefl profile fit` reads.

    0 threads are PyTorch's default. Runs shorter than ``least_block`` are timed in groups.
    """
    before = torch.get_num_threads()
    used = threads or before
    torch.set_num_threads(used)
    try:
        peak = fastest_product(min(0.5, seconds / 10))
        timed, skipped = time_cases(
            wanted, seconds, clock_for(used), say, least_block=least_block, needed=needed(wanted)
        )
    finally:
        torch.set_num_threads(before)
    return {
        "format": FORMAT,
        "version": VERSION,
        "machine": {
            "processor": processor(),
            "system": platform.platform(terse=True),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "threads": used,
            "processors": os.cpu_count() or 1,
            "memory_bytes": memory_bytes(),
            "peak_flops_per_second": peak,
        },
        "date": datetime.date.today().isoformat(),
        "cases": {name: timing._asdict() for name, timing in timed.items()},
        "left_out": skipped,
    }


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Measure the device, and write the file."""
    parser = argparse.ArgumentParser(description="Measure how fast this device trains, for `edgefl profile fit`.")
    parser.add_argument("-o", "--output", default="measured.json", help="the JSON file to write")
    parser.add_argument("--seconds", type=float, default=120.0, help="approximately how long it may take (120)")
    parser.add_argument("--threads", type=int, default=0, help="threads that train (PyTorch's default)")
    parser.add_argument("--only", default="", help="time only the cases whose name contains this text")
    options = parser.parse_args(arguments)
    if not 0 < options.seconds < math.inf or options.threads < 0:
        parser.error("expected --seconds above 0 and --threads of at least 0")
    wanted = {name: case for name, case in cases().items() if options.only in name}
    if not wanted:
        parser.error(f"no case's name contains '{options.only}'")
    say = partial(print, flush=True)
    unfinished = options.output + ".unfinished"
    try:
        file = open(unfinished, "w", encoding="utf-8")  # noqa: SIM115  (before minutes of measuring)
    except OSError as error:
        parser.error(f"{unfinished} cannot be written: {error.strerror}")
    with file:
        say(f"{len(wanted)} cases on {processor()}, PyTorch {torch.__version__}, about {options.seconds:g} s.")
        found = measurement(options.seconds, options.threads, say, wanted)
        json.dump(found, file, indent=1)
        file.write("\n")
    os.replace(unfinished, options.output)
    say(f"{len(found['cases'])} cases timed, {len(found['left_out'])} left out. Written: {options.output}")
    return 0
