"""How many processor cores there are for this process."""

from __future__ import annotations

import os


def cores() -> int:
    """Processor cores that this process may use (a container's or ``taskset``'s share, not the machine's)."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # pragma: no cover  (macOS, Windows)
        return os.cpu_count() or 1
