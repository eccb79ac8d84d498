"""The device as its system describes it."""

from __future__ import annotations

import platform
from pathlib import Path


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
