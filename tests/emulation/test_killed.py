"""An emulation that is killed (SIGKILL) in a measured round goes on: no row is lost, and none is there twice."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import yaml

from edgefl.cpu_quota import ROOTS, CpuQuota
from edgefl.emulation.emulate import resume
from edgefl.emulation.machine import in_namespaces
from edgefl.errors import UserError
from edgefl.experiment.journal import Journal
from edgefl.record.emulation import read_emulation
from edgefl.record.paths import RunPaths
from edgefl.record.tables import read_events
from edgefl.rerun.verify import verify

from .test_emulate import devices_and_queues, gone, small
from .test_resume import BATTERY

KILLED_IN = 3
"""The journal has two rounds then, and the first of them is certainly in a checkpoint."""

CHANGES = {
    "synchronous": ("star-20ms", {}),
    "asynchronous": ("star-20ms", {"protocol": {"kind": "asynchronous", "buffer": 2, "concurrency": 4}}),
    "battery": ("star-20ms", BATTERY),
    "real computing": ("star-20ms", {"cost": {"kind": "measured"}}),
}


def rounds_of(checkpoints: Path) -> int:
    """The newest round with a manifest of its checkpoint; the journal itself must not be opened next to its run."""
    return max((int(file.name.split("-")[1]) for file in checkpoints.glob("round-*.json")), default=0)


def measured_until_checkpoint(folder: Path, copy: Path):
    """The round of the last checkpoint, and the rows up to its end, from a copy of the journal."""
    copy.mkdir()
    for file in folder.glob("journal.sqlite*"):
        shutil.copy(file, copy)
    with Journal(copy / "journal.sqlite") as journal:
        round = max((number for number, _ in journal.checkpoints()), default=0)
        return round, journal.cut(round)


def quotas_left() -> list[Path]:
    """The control groups of processes that are gone."""
    groups = [folder for root in ROOTS for folder in root.glob("edgefl-*-*")]
    return [each for each in groups if not Path("/proc", each.name.split("-")[1]).exists()]


@pytest.mark.release
@pytest.mark.skipif(in_namespaces() is None, reason="network namespaces cannot be made here")
@pytest.mark.parametrize(
    "kind",
    CHANGES,
)
def test_an_emulation_that_is_killed_in_a_measured_round_goes_on(tmp_path, kind):
    name, changes = CHANGES[kind]
    scenario = small(name, **changes)
    scenario["training"].update(rounds=4, cohort=4)
    options = ["--dilate", "2"]
    if kind == "real computing":
        try:
            with CpuQuota():
                pass
        except UserError as error:
            pytest.skip(error.message)
        scenario["fleet"][0]["overrides"] = {"compute": {"cpu_quota": 0.4}}
        options = ["--dilate", "1", "--compute", "real"]
    file, out = tmp_path / "scenario.yaml", tmp_path / "run"
    file.write_text(yaml.safe_dump(scenario))
    paths, before = RunPaths(out).of("fedavg", 0), devices_and_queues()
    command = [sys.executable, "-m", "edgefl", "emulate", str(file), "--out", str(out), *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 300.0
    while rounds_of(paths.checkpoints) < KILLED_IN - 1 and process.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert gone(process.pid)
    round, measured = measured_until_checkpoint(paths.folder, tmp_path / "copy")
    assert round >= KILLED_IN - 2
    runs = resume(out)
    rows = list(read_events(paths.events))
    assert rows[: len(measured)] == measured
    assert [row.round for row in rows if row.kind == "round_end"] == [1, 2, 3, 4]
    emulation = read_emulation(paths.emulation)
    assert emulation is not None
    assert emulation.after_round == round
    assert verify(runs.measured) == verify(runs.predicted) == []
    assert devices_and_queues() == before
    assert quotas_left() == []
    assert not list(Path(tempfile.gettempdir()).glob(f"edgefl-emulation-{process.pid}-*"))
