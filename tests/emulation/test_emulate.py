"""A short emulation in real namespaces; skipped where they cannot be made."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from edgefl.cli import main
from edgefl.emulation.emulate import emulate, temporary_folder
from edgefl.emulation.machine import Finding, in_namespaces
from edgefl.errors import UserError
from edgefl.record.paths import RunPaths
from edgefl.report.prediction.comparing import compare_runs
from edgefl.report.run_result import RunResult
from edgefl.rerun.verify import verify
from edgefl.scenario.loading import check

from .campaign import scenarios


@pytest.fixture(scope="module", autouse=True)
def _needs_namespaces():
    if in_namespaces() is None:
        pytest.skip("network namespaces cannot be made here; edgefl emulate --check says why")


def small(name: str, **changes):
    """A scenario of the campaign with two rounds, few images and fast devices, so that it takes few seconds."""
    data = scenarios()[name]
    fleet = [{"profile": "jetson-orin-nano", "share": 1, "link": "wifi"}]
    training = {**data["training"], "rounds": 2, "cohort": 3}
    return {**data, "data": {**data["data"], "images": 250}, "fleet": fleet, "training": training, **changes}


def command_line(process: int) -> str:
    """The words with which a process was started."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def descendants(process: int) -> list[int]:
    """The processes that a process has started, and those that these have started."""
    found = [process]
    for parent in found:
        with suppress(OSError):
            for children in list(Path(f"/proc/{parent}/task").glob("*/children")):
                found += [int(each) for each in children.read_text().split()]
    return found[1:]


def left_behind(process: int) -> list[str]:
    """The command lines of processes of the emulations of a process; they name its folder."""
    words = [command_line(int(each.name)) for each in Path("/proc").glob("[0-9]*")]
    return [each for each in words if f"edgefl-emulation-{process}-" in each and "edgefl.emulation" in each]


def gone(process: int, seconds: float = 20.0) -> bool:
    """Whether all of them end within this time."""
    until = time.monotonic() + seconds
    while left_behind(process) and time.monotonic() < until:
        time.sleep(0.1)
    return not left_behind(process)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("star-20ms", {}),
        pytest.param("hierarchical", {}, marks=pytest.mark.full),
        pytest.param("star-20ms", {"protocol": {"kind": "gossip", "neighbours": "complete"}}, marks=pytest.mark.full),
        pytest.param("star-20ms", {"protocol": {"kind": "ring_all_reduce"}}, marks=pytest.mark.full),
        pytest.param("fedadc", {}, marks=pytest.mark.release),
    ],
)
def test_an_emulated_run_ends_with_the_simulated_model_and_its_bytes(tmp_path, name, changes):
    runs = emulate(check(small(name, **changes)), out=tmp_path / "run")
    against = compare_runs(RunResult(runs.measured), RunResult(runs.predicted))
    for label, seeds in against.seeds.items():
        found, files = seeds[0], [RunPaths(run).of(label, 0) for run in runs]
        assert found.decisions.same == 2
        assert files[0].final_model.read_bytes() == files[1].final_model.read_bytes()
        # A transfer has a head in addition to its bytes.
        wire = found.emulation.wire_bytes
        assert found.bytes["down"][2] <= wire.down <= 1.005 * found.bytes["down"][2]
        assert found.bytes["up"][2] <= wire.up <= 1.005 * found.bytes["up"][2]
        # A busy machine makes rounds longer; nothing makes them much shorter than their bytes and seconds allow.
        assert all(gap.measured > 0.97 * gap.predicted for gap in found.gaps if gap.what == "round")
    assert verify(runs.measured) == []
    assert gone(os.getpid())


@pytest.mark.full
def test_a_deadline_cuts_real_transfers_off(tmp_path):
    scenario = small("deadline", protocol={"kind": "synchronous", "deadline": "0.6 s"})
    runs = emulate(check(scenario), out=tmp_path / "run", train=False)
    summary = json.loads(RunPaths(runs.measured).summary.read_text())
    (found,) = summary["methods"]["fedavg"]
    assert found["bytes"]["by_fate"]["late"] > 0
    assert verify(runs.measured) == []


@pytest.mark.release
def test_with_one_queue_the_command_computes_a_band_for_each_round(tmp_path):
    file, out = tmp_path / "scenario.yaml", tmp_path / "run"
    file.write_text(yaml.safe_dump(small("fifo")))
    assert main(["emulate", str(file), "--out", str(out)]) == 0
    against = compare_runs(RunResult(out), RunResult(tmp_path / "run-predicted"))
    assert against.bands.draws == 19
    assert set(against.bands.rounds) == {("fedavg", 0, 1), ("fedavg", 0, 2)}


def namespace_of(process: int) -> str:
    """The network namespace of a process; an empty text once it has ended."""
    try:
        return str(Path(f"/proc/{process}/ns/net").readlink())
    except OSError:
        return ""


def namespaces() -> set[str]:
    """All network namespaces: those of processes, and those that are mounted, as `ip netns` does it."""
    mounted = re.findall(r"net:\[\d+\]", Path("/proc/self/mountinfo").read_text())
    return {namespace_of(int(each.name)) for each in Path("/proc").glob("[0-9]*")} | {*mounted}


def devices_and_queues() -> list[str]:
    """The devices of this process's network namespace, and how they queue."""
    path = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    queues = subprocess.run(["tc", "qdisc", "show"], check=True, capture_output=True, text=True, env=path).stdout
    return [*sorted(each.name for each in Path("/sys/class/net").iterdir()), *queues.splitlines()]


@pytest.mark.full
def test_nothing_is_left_behind_by_an_emulation_that_is_killed(tmp_path):
    file = tmp_path / "scenario.yaml"
    file.write_text(yaml.safe_dump(small("star-20ms")))
    before = devices_and_queues()
    command = [sys.executable, "-m", "edgefl", "emulate", str(file), "--no-train", "--dilate", "50"]
    process = subprocess.Popen([*command, "--out", str(tmp_path / "run")], stderr=subprocess.DEVNULL)
    made: set[str] = set()
    started: set[int] = set()
    try:
        until = time.monotonic() + 60.0
        # The server, ten clients and the node between them.
        while len(made) < 12 and process.poll() is None and time.monotonic() < until:
            time.sleep(0.1)
            started |= {*descendants(process.pid)}
            nodes = [each for each in started if "edgefl.emulation.node" in command_line(each)]
            made = {namespace_of(each) for each in nodes} - {"", namespace_of(os.getpid())}
        assert len(made) == 12
        assert made <= namespaces()
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert gone(process.pid)
    until = time.monotonic() + 20.0
    while made & namespaces() and time.monotonic() < until:
        time.sleep(0.1)
    assert not made & namespaces()
    assert not [each for each in started if "edgefl" in command_line(each)]
    assert devices_and_queues() == before
    folders = list(Path(tempfile.gettempdir()).glob(f"edgefl-emulation-{process.pid}-*"))
    assert len(folders) == 1
    with temporary_folder():  # the next start removes it
        assert not any(folder.exists() for folder in folders)


@pytest.mark.release
def test_a_stopped_emulation_says_that_it_starts_again(tmp_path):
    file, out = tmp_path / "scenario.yaml", tmp_path / "run"
    file.write_text(yaml.safe_dump(small("star-20ms")))
    command = [sys.executable, "-m", "edgefl", "emulate", str(file), "--no-train", "--dilate", "50", "--out", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60.0
    while not left_behind(process.pid) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.1)
    begun = RunPaths(out).state.is_file() and RunPaths(tmp_path / "run-predicted").summary.is_file()
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60.0)[1]
    assert begun
    assert process.returncode == 130
    assert "to continue: start the emulation again in another folder" in said
    assert gone(process.pid)


@pytest.mark.release
def test_the_end_of_the_process_that_delays_packets_ends_the_emulation(tmp_path):
    file = tmp_path / "scenario.yaml"
    file.write_text(yaml.safe_dump(small("star-20ms")))
    command = [sys.executable, "-m", "edgefl", "emulate", str(file), "--no-train", "--dilate", "5"]
    process = subprocess.Popen([*command, "--out", str(tmp_path / "run")], stderr=subprocess.PIPE, text=True)
    until, found = time.monotonic() + 60.0, []
    while not found and process.poll() is None and time.monotonic() < until:
        found = [each for each in descendants(process.pid) if "emulation.delay_line" in command_line(each)]
        time.sleep(0.1)
    if not found:
        process.terminate()
        process.communicate(timeout=30.0)
        pytest.skip("this kernel delays packets itself")
    os.kill(found[0], signal.SIGKILL)
    said = process.communicate(timeout=60.0)[1]
    assert process.returncode == 1
    assert "the process that delays packets " in said  # has ended, or did not start
    assert gone(process.pid)


@pytest.mark.parametrize(
    ("part", "changes"), [("transport", {"multicast": True}), ("topology", {"sharing": "rate_fair"})]
)
def test_what_real_links_cannot_do_is_refused_by_name(tmp_path, capsys, part, changes):
    data = small("hierarchical")
    file = tmp_path / "scenario.yaml"
    network = {**data["network"], part: {**data["network"][part], **changes}}
    file.write_text(yaml.safe_dump({**data, "network": network}))
    assert main(["emulate", str(file), "--out", str(tmp_path / "run")]) == 2
    assert f"network.{part}.{next(iter(changes))}: expected" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [file]


def test_a_fleet_with_too_many_nodes_is_refused_before_the_simulation(tmp_path, monkeypatch):
    monkeypatch.setattr("edgefl.emulation.wiring.MOST_NODES", 11)
    begun = []
    with pytest.raises(UserError, match=r"expected at most 11 nodes .* found 12"):
        emulate(check(small("star")), out=tmp_path / "run", say=begun.append)
    assert (begun, list(tmp_path.iterdir())) == ([], [])


def test_a_machine_that_delays_no_packet_is_refused_before_the_simulation(tmp_path, monkeypatch):
    lacking = [Finding(what, what not in {"netem", "tun"}, "absent", needed=False) for what in ("tc", "netem", "tun")]
    monkeypatch.setattr("edgefl.emulation.emulate.check", lambda: lacking)
    begun = []
    with pytest.raises(UserError, match="latencies need netem or tun"):
        emulate(check(small("star-20ms")), out=tmp_path / "run", say=begun.append)
    assert begun == []
