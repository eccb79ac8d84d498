"""How many cores a process may use: its affinity, and the quotas of the cgroups that hold it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgefl.training.processors import _quotas, cores

V2 = "23 22 0:21 {inside} {mounted} rw - cgroup2 cgroup rw,nsdelegate"
V1 = "31 22 0:29 {inside} {mounted} rw - cgroup cgroup rw,cpu,cpuacct"
OTHER = "30 22 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset"


def machine(root: Path, group: str, mounts: list[str], files: dict[str, str]) -> Path:
    """A root folder with what the system would say."""
    for path, text in {
        "proc/self/cgroup": f"{group}\n" if group else "",
        "proc/self/mountinfo": "".join(f"{line}\n" for line in mounts),
        **files,
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def v1(quota: int, period: int, folder: str) -> dict[str, str]:
    return {f"{folder}/cpu.cfs_quota_us": f"{quota}\n", f"{folder}/cpu.cfs_period_us": f"{period}\n"}


CASES = {
    "a container, version 2": (
        "0::/", [V2.format(inside="/", mounted="/sys/fs/cgroup")],
        {"sys/fs/cgroup/cpu.max": "150000 100000\n"}, [1.5],
    ),
    "no quota, version 2": (
        "0::/", [V2.format(inside="/", mounted="/sys/fs/cgroup")], {"sys/fs/cgroup/cpu.max": "max 100000\n"}, [],
    ),
    "a service within a slice that has less": (
        "0::/work.slice/one.service", [V2.format(inside="/", mounted="/sys/fs/cgroup")],
        {
            "sys/fs/cgroup/work.slice/cpu.max": "50000 100000\n",
            "sys/fs/cgroup/work.slice/one.service/cpu.max": "400000 100000\n",
            "sys/fs/cgroup/other.slice/cpu.max": "1000 100000\n",
        },
        [0.5, 4.0],
    ),
    "a container, version 1, that sees its own cgroup at the root": (
        "4:cpu,cpuacct:/docker/abc\n3:cpuset:/docker/abc",
        [V1.format(inside="/docker/abc", mounted="/sys/fs/cgroup/cpu,cpuacct"), OTHER],
        v1(200000, 100000, "sys/fs/cgroup/cpu,cpuacct"), [2.0],
    ),
    "a process of a machine, version 1": (
        "4:cpu,cpuacct:/jobs", [V1.format(inside="/", mounted="/sys/fs/cgroup/cpu")],
        v1(-1, 100000, "sys/fs/cgroup/cpu") | v1(300000, 100000, "sys/fs/cgroup/cpu/jobs"), [3.0],
    ),
    "a system without cgroups": ("", [], {}, []),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_trainers_of_all_cgroups_that_hold_the_process_count(tmp_path, case):
    group, mounts, files, expected = CASES[case]
    assert list(_quotas(machine(tmp_path, group, mounts, files))) == expected


@pytest.mark.parametrize(
    ("quota", "found"), [(10_000, 1), (100_000, 1), (100_001, 2), (150_000, 2), (10_000_000, None)]
)
def test_a_quota_is_rounded_up_and_at_least_one_core(tmp_path, quota, found):
    group, mounts, _, _ = CASES["a container, version 2"]
    root = machine(tmp_path, group, mounts, {"sys/fs/cgroup/cpu.max": f"{quota} 100000\n"})
    present = len(os.sched_getaffinity(0))
    assert cores(root) == min(present, found or present)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="not Linux")
def test_the_processors_affinity_counts():
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, [min(before)])
        assert cores() == 1
    finally:
        os.sched_setaffinity(0, before)
