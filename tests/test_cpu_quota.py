"""A quota limits processes to a part of one processor, and leaves nothing behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgefl import cpu_quota
from edgefl.cpu_quota import CpuQuota, limited, period_seconds
from edgefl.errors import UserError

BUSY = """
import sys, time
sys.stdin.readline()
began = time.perf_counter(), time.process_time()
while time.perf_counter() - began[0] < 0.5:
    pass
print(time.perf_counter() - began[0], time.process_time() - began[1])
"""


@pytest.fixture(name="real")
def real_fixture():
    try:
        with CpuQuota():
            pass
    except UserError as error:
        pytest.skip(str(error))


def groups():
    return {folder for root in cpu_quota.ROOTS for folder in root.glob("edgefl-*")}


def own_group():
    return Path("/proc/self/cgroup").read_text(encoding="ascii")


@pytest.mark.usefixtures("real")
def test_a_process_gets_at_most_its_part_of_a_processor():
    command = [sys.executable, "-c", BUSY]
    with CpuQuota() as group, subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        group.set(0.2)
        group.add(process.pid)
        answer, _ = process.communicate(b"\n")
    seconds, used = map(float, answer.split())
    # What is left of a period before it, and one tick of the kernel beyond the quota.
    assert used <= 0.2 * (seconds + 2 * period_seconds(0.2)) + 0.02


@pytest.mark.usefixtures("real")
def test_this_process_returns_to_its_group_also_after_an_error():
    before, known = own_group(), groups()

    def fail():
        with limited(0.5):
            assert own_group() != before
            assert len(groups() - known) == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert own_group() == before
    assert not any(f"-{os.getpid()}-" in folder.name for folder in groups())


@pytest.mark.usefixtures("real")
def test_the_group_of_a_killed_process_is_removed_at_the_next_start():
    with CpuQuota() as group, subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
        left = group._folder.with_name(f"edgefl-{process.pid}-0")
        left.mkdir()
    with CpuQuota() as other:
        assert not left.exists()
        assert other._folder.exists()
    assert not other._folder.exists()


def test_version_2_states_quota_and_period_in_one_file(monkeypatch, tmp_path):
    monkeypatch.setattr(cpu_quota, "ROOTS", (tmp_path / "none", tmp_path))
    (tmp_path / "cgroup.controllers").touch()
    with CpuQuota() as group:
        group.set(0.25)
        (folder,) = tmp_path.glob(f"edgefl-{os.getpid()}-*")
        # A quarter of 50 ms.
        assert (folder / "cpu.max").read_text() == "12500 50000"
        assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu"
        group.set(None)
        assert (folder / "cpu.max").read_text() == "max"


def test_one_sentence_says_that_groups_cannot_be_made(monkeypatch, tmp_path):
    monkeypatch.setattr(cpu_quota, "ROOTS", (tmp_path / "none", tmp_path / "none"))
    with pytest.raises(UserError, match=r"needs a control group, and .* cannot be written .*run as root"), CpuQuota():
        pass
