"""The cases that are timed, and their timing in turn over several rounds."""

from __future__ import annotations

import math
import platform
import time
from pathlib import Path
from typing import Any, Callable, Collection, Dict, List, NamedTuple, Tuple

import torch
from torch import Tensor

Shape = Tuple[int, ...]
Run = Callable[[], Any]
Maker = Callable[..., Tensor]
"""Makes a tensor; its arguments are the shape."""


class Case(NamedTuple):
    """What makes the tensors of a computation and returns the function to time, and about how much memory."""

    prepare: Callable[[Maker], Run]
    megabytes: float


def channels_last(tensor: Tensor) -> Tensor:
    """Return images and kernels in channels-last format, as edgefl trains them; other tensors unchanged."""
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor


def processor() -> str:
    """Return the processor's name as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        for key in ("model name", "Model", "Hardware"):
            names = [line.partition(":")[2].strip() for line in lines if line.startswith(key)]
            if names:
                return names[0]
    except OSError:
        pass
    return platform.processor() or platform.machine()


def memory_bytes(which: str = "MemTotal") -> int:
    """Return the main memory that Linux or Android reports; 0 if not reported."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
            if line.startswith(which + ":"):
                return 1024 * int(line.split()[1])
    except (OSError, ValueError, IndexError):
        pass
    return 0


LEAST_LIMIT_SECONDS = 20.0
"""The first round may always take this long; if little time is given, only its cases that a fit needs."""

SHORT_SECONDS = 60.0
"""With less time than this, all time goes to what a fit needs."""

NO_TIME = "no time left"

LEAST_BLOCK_SECONDS = 1e-3
"""Shorter runs are timed in groups, so that the cost of reading the clock is negligible."""


class Timing(NamedTuple):
    """How long a case takes."""

    seconds: float  # the minimum over all repetitions, because other work on the device can only add to it
    spread: float  # their median divided by the minimum
    repetitions: int


def clock_for(threads: int) -> Callable[[], float]:
    """The clock: for one thread the process's processor time, which excludes other programs; else wall time."""
    fine = time.get_clock_info("process_time").resolution <= 1e-6
    return time.process_time if threads == 1 and fine else time.perf_counter


def time_cases(
    wanted: Dict[str, Case],
    seconds: float,
    clock: Callable[[], float],
    say: Callable[[str], None],
    *,
    rounds: int = 5,
    least_block: float = LEAST_BLOCK_SECONDS,
    needed: Collection[str] = (),
    now: Callable[[], float] = time.monotonic,
) -> Tuple[Dict[str, Timing], Dict[str, str]]:
    """Time every case in each of several rounds, so that a busy moment of the device affects one round only.

    All takes about ``seconds``; the first round stops at twice that, but not before 20 s. If it is below
    :data:`SHORT_SECONDS` and cases are ``needed`` for a fit, they come first, with one warm-up run, and only they may
    take longer. Runs shorter than ``least_block`` seconds are timed in groups of this duration. ``now`` is a clock that
    counts all time, ``clock`` one that need not.

    Returns:
        The timings, and why cases were left out.
    """
    times: Dict[str, List[float]] = {}
    skipped: Dict[str, str] = {}
    short = seconds < SHORT_SECONDS and bool(needed)
    if short:  # sorting is stable: the order is otherwise that of the cases
        wanted = dict(sorted(wanted.items(), key=lambda each: each[0] not in needed))
    longest = max(2 * seconds, LEAST_LIMIT_SECONDS)
    began = now()
    for number in range(rounds):
        for name, case in wanted.items():
            spent = now() - began
            if name in skipped or (number and spent > seconds):
                continue
            try:
                _check(case, late=spent > (seconds if short and name not in needed else longest))
                share = max(0.0, seconds - spent) / (rounds - number) / len(wanted)
                warm = number == 0 and not short
                block = _block(case, 0.0 if short and not number else share, clock, now, warm=warm, least=least_block)
                times.setdefault(name, []).extend(block)
            except (MemoryError, RuntimeError) as error:
                if name not in times:
                    skipped[name] = str(error).splitlines()[0] if str(error) else "out of memory"
                    if skipped[name] != NO_TIME:
                        say(f"left out: {name}: {skipped[name]}")
        late = sum(reason == NO_TIME for reason in skipped.values())
        if late and not number:
            say(f"left out: {late} of {len(wanted)} cases, because no time is left; more are timed with more --seconds")
        say(f"round {number + 1} of {rounds}: {len(times)} cases, {now() - began:.0f} s since the start")
    ordered = {name: sorted(values) for name, values in times.items() if values}
    return {
        name: Timing(values[0], values[len(values) // 2] / values[0], len(values)) for name, values in ordered.items()
    }, skipped


def _block(
    case: Case, share: float, clock: Callable[[], float], now: Callable[[], float], *, warm: bool, least: float
) -> List[float]:
    """Return the seconds of single runs, measured for about ``share`` seconds after the warm-up."""
    source = torch.Generator().manual_seed(0)
    run = case.prepare(lambda *shape: 0.05 * torch.randn(shape, generator=source))
    for _ in range(2 if warm else 1):
        began = clock()
        run()
        once = max(clock() - began, 1e-7)
    together = max(1, math.ceil(least / once))
    values: List[float] = []
    began = now()
    while not values or now() - began < share:
        start = clock()
        for _ in range(together):
            run()
        values.append(max(clock() - start, 1e-9) / together)
    return values


def _check(case: Case, *, late: bool) -> None:
    if late:
        raise MemoryError(NO_TIME)
    free = memory_bytes("MemAvailable")
    if free and 1e6 * case.megabytes > 0.7 * free:
        raise MemoryError(f"needs about {case.megabytes:.0f} MB, {free / 1e6:.0f} MB are free")


def fastest_product(seconds: float, side: int = 512) -> float:
    """Return the FLOP/s of the fastest of several products of square matrices: about the processor's peak."""
    first, second = torch.ones(side, side), torch.ones(side, side)
    best, began = 0.0, time.monotonic()
    while not best or time.monotonic() - began < seconds:
        start = time.perf_counter()
        first @ second
        best = max(best, 2 * side**3 / (time.perf_counter() - start))
    return best
