"""The peak memory of successive pieces of work."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import torch

from edgefl.training import accelerator

_RESET, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def reset_peak(device: torch.device) -> None:
    """Reset the peak if the system supports it: for an accelerator's memory, and for a process's memory on Linux."""
    if device.type == "cuda":
        accelerator.reset_peak(device)
        return
    try:
        _RESET.write_text("5", encoding="ascii")
    except OSError:
        return


def peak_bytes(device: torch.device) -> int:
    """The peak bytes since :func:`reset_peak`, or since the process began if the system cannot reset the peak.

    On Linux this includes the private memory of child processes at the time of the call.
    """
    if device.type == "cuda":
        return accelerator.peak_bytes(device)
    try:
        lines = _STATUS.read_text(encoding="ascii").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) + _held_by_children()
    except (OSError, StopIteration, ValueError):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _held_by_children() -> int:
    """Main memory of the child processes, without the memory that they share with this process."""
    held = 0
    for thread in Path("/proc/self/task").iterdir():
        try:
            for process in (thread / "children").read_text(encoding="ascii").split():
                lines = Path("/proc", process, "smaps_rollup").read_text(encoding="ascii").splitlines()
                held += 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
        except OSError:
            continue  # it has ended, or the system does not report it
    return held


def resident_bytes() -> int:
    """Main memory that the process holds now; 0 if the system does not report it."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * resource.getpagesize()
