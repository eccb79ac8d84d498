"""A part of one processor for some processes, by a control group (cgroup) of Linux: it stands for a slower device."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Self

from edgefl.errors import UserError

ROOTS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))
"""Where the hierarchies of versions 1 and 2 are mounted."""

LEAST, MOST = 0.01, 1.0
"""The quotas that are allowed, in processors. A single thread cannot use more than one."""

_PERIOD_SECONDS, _LEAST_RUN_SECONDS = 0.05, 0.01
"""The period of a quota, and the least time in it in which processes run.

A job ends up to a period too early or too late, so it is short. But after each wait the caches are cold: with 5 ms of
running in a period, steps of a small network took a quarter to a half more time on the processor.
"""

_SHARES, _WEIGHT = 8192, 800
"""Priority of the processes, eight times that of others: the quota should limit them, not other programs."""

_PREFIX = "edgefl-"
_numbers = count()


class CpuQuota:
    """A control group whose processes may use a part of one processor; a context manager.

    Its name contains this process's id, so that :func:`remove_leftovers` finds the groups of killed processes.
    """

    def __init__(self) -> None:
        self._homes: dict[int, Path] = {}
        self._root = Path()
        self._folder = Path()
        self._old = False

    def __enter__(self) -> Self:
        self._old = (ROOTS[0] / "cpu.shares").exists() or not (ROOTS[1] / "cgroup.controllers").exists()
        self._root = ROOTS[0] if self._old else ROOTS[1]
        self._folder = self._root / f"{_PREFIX}{os.getpid()}-{next(_numbers)}"
        remove_leftovers(self._root)
        try:
            if not self._old:
                (self._root / "cgroup.subtree_control").write_text("+cpu")
            self._folder.mkdir()
            if self._old:
                self._write("cpu.shares", _SHARES)
            else:
                self._write("cpu.weight", _WEIGHT)
            self.set(None)  # refused where the kernel has no quotas
        except OSError as error:
            with suppress(OSError):
                self._folder.rmdir()
            raise UserError(
                f"a CPU quota needs a control group, and {error.filename or self._folder} cannot be written "
                f"({error.strerror}); run as root on Linux, outside of an unprivileged container"
            ) from None
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with suppress(OSError):
            for pid in (self._folder / "cgroup.procs").read_text().split():
                with suppress(OSError):  # it has ended meanwhile
                    (self._homes.get(int(pid), self._root) / "cgroup.procs").write_text(pid)
        with suppress(OSError):
            self._folder.rmdir()

    def add(self, pid: int) -> None:
        """Put a process with all its threads into the group; it leaves it when the group is removed."""
        self._homes[pid] = self._home(pid)
        self._write("cgroup.procs", pid)

    def set(self, processors: float | None) -> None:
        """Limit all processes of the group together to a part of a processor; None for no limit."""
        if processors is None:
            self._write(*(("cpu.cfs_quota_us", -1) if self._old else ("cpu.max", "max")))
            return
        period = period_seconds(processors)
        quota, whole = round(1e6 * processors * period), round(1e6 * period)
        if self._old:
            self._write("cpu.cfs_quota_us", -1)  # a quota above its period is refused, so neither may be set first
            self._write("cpu.cfs_period_us", whole)
            self._write("cpu.cfs_quota_us", quota)
        else:
            self._write("cpu.max", f"{quota} {whole}")

    def _write(self, name: str, content: str | int) -> None:
        (self._folder / name).write_text(str(content))

    def _home(self, pid: int) -> Path:
        for line in Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii").splitlines():
            _, controllers, path = line.split(":", 2)
            if ("cpu" in controllers.split(",")) if self._old else not controllers:
                home = self._root / path.lstrip("/")
                return home if home.is_dir() else self._root  # elsewhere, as seen from a container
        return self._root


@contextmanager
def limited(processors: float) -> Iterator[None]:
    """Run this process under a quota; UserError if control groups cannot be made here."""
    with CpuQuota() as group:
        group.set(processors)
        group.add(os.getpid())
        yield


def period_seconds(processors: float) -> float:
    """The period in which a quota is granted: short, but not so short that the kernel cannot keep it.

    >>> period_seconds(0.5), period_seconds(0.04)
    (0.05, 0.25)
    """
    return max(_PERIOD_SECONDS, _LEAST_RUN_SECONDS / processors)


def remove_leftovers(root: Path) -> None:
    """Remove the groups of killed processes."""
    for folder in root.glob(f"{_PREFIX}*-*"):
        pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            with suppress(OSError):  # some process is still in it, or another start has removed it
                folder.rmdir()
