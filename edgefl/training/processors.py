"""The number of processor cores that this process may use."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_ROOT = Path("/")


def cores(root: Path = _ROOT) -> int:
    """Processor cores that this process may use: those of its CPU affinity, limited by the quotas of its cgroups.

    A container's quota (``docker run --cpus 1.5``) is rounded up, because worker processes sometimes wait.
    """
    try:
        available = len(os.sched_getaffinity(0))
    except AttributeError:  # pragma: no cover  (macOS, Windows)
        available = os.cpu_count() or 1
    return max(1, min(available, math.ceil(min(_quotas(root), default=available))))


def _quotas(root: Path) -> Iterator[float]:
    """In cores; cgroups of version 1 or 2."""
    for folder in _folders(root):
        try:
            if (folder / "cpu.max").is_file():
                quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
            else:
                quota = (folder / "cpu.cfs_quota_us").read_text(encoding="ascii").strip()
                period = (folder / "cpu.cfs_period_us").read_text(encoding="ascii").strip()
            if quota not in ("max", "-1"):
                yield int(quota) / int(period)
        except (OSError, ValueError, ZeroDivisionError):
            continue  # the root cgroup has no quota


def _folders(root: Path) -> Iterator[Path]:
    """The folders of this process's cgroups with the controller ``cpu``, and of all their parent cgroups."""
    try:
        groups = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
        mounts = (root / "proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    own: dict[str, PurePosixPath] = {}
    for line in groups:
        _, controllers, path = line.split(":", 2)
        own.update(dict.fromkeys(controllers.split(","), PurePosixPath(path)))
    for line in mounts:
        place, _, filesystem = line.partition(" - ")
        kind, *_, options = filesystem.split(" ")
        controller = {"cgroup2": "", "cgroup": "cpu"}.get(kind, "none")
        if controller not in own or (controller and controller not in options.split(",")):
            continue
        inside, mounted = place.split(" ")[3:5]
        # In a container, a cgroup may be mounted without its parents.
        group = own[controller]
        within = group.relative_to(inside) if group.is_relative_to(inside) else PurePosixPath()
        folder = root / mounted.lstrip("/")
        yield folder
        for part in within.parts:
            folder /= part
            yield folder
