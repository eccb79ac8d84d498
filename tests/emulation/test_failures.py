"""Crashes and outages in real namespaces: processes are killed and replaced, links carry nothing for a while."""

import os
import signal
import time
from pathlib import Path

import pytest

from edgefl.emulation.emulate import emulate
from edgefl.emulation.machine import in_namespaces
from edgefl.emulation.nodes import EmulationFailed
from edgefl.emulation.real_links import made_links
from edgefl.emulation.wiring import LinkSettings, plan_wiring
from edgefl.network.tree import TreeLinks
from edgefl.record.paths import RunPaths
from edgefl.record.tables import read_events
from edgefl.rerun.verify import verify
from edgefl.scenario.loading import check

from .test_emulate import command_line, gone, small

MANY_BYTES = 20_000_000
"""A transfer of 20 s, of which the machine may stand still for most."""


@pytest.fixture(scope="module", autouse=True)
def _needs_namespaces():
    if in_namespaces() is None:
        pytest.skip("network namespaces cannot be made here; edgefl emulate --check says why")


@pytest.fixture(name="real_links")
def real_links_fixture(tmp_path):
    """A server and two clients with 8 Mbit/s each."""
    star = TreeLinks(server=(1e9, 1e9), down=[8e6, 8e6], up=[8e6, 8e6], latency=0.0)
    wiring = plan_wiring(star, [("server", "client/0"), ("server", "client/1")])
    with made_links(wiring, LinkSettings(), folder=tmp_path, content=bytes(range(256))) as real_links:
        real_links.open_connections(20.0)
        yield real_links


def process_of(real_links, node, *, other_than=-1):
    """The process of a node, once there is one."""
    until = time.monotonic() + 60.0
    while time.monotonic() < until:
        for place in Path("/proc").glob("[0-9]*"):
            words = command_line(int(place.name)).split()
            if int(place.name) != other_than and {node, str(real_links.nodes.path)} <= {*words}:
                return int(place.name)
        time.sleep(0.05)
    raise AssertionError(f"{node} has no process")


def namespace_of(process):
    return Path(f"/proc/{process}/ns/net").readlink()


def ended(process, seconds=60.0):
    """Whether a process ends within this time."""
    until = time.monotonic() + seconds
    while command_line(process) and time.monotonic() < until:
        time.sleep(0.05)
    return not command_line(process)


def progress(real_links, flow, target, least, seconds=60.0):
    """The bytes of a transfer, once there are at least so many."""
    until = time.monotonic() + seconds
    while (found := real_links.progress(flow, target)) < least:
        assert time.monotonic() < until, f"{found} of {least} bytes arrived in {seconds:g} s"
        time.sleep(0.05)
    return found


def arrives(real_links, flow, source, target):
    """Whether a short transfer arrives."""
    real_links.send(flow, source, target, 50_000, None)
    return bool(real_links.nodes.wait_for("arrived", flow, 60.0))


@pytest.mark.full
def test_a_killed_process_is_replaced_in_its_namespace_and_its_peers_go_on(real_links):
    before = process_of(real_links, "client/0")
    namespace = namespace_of(before)
    real_links.send(0, "server", "client/0", MANY_BYTES, None)
    real_links.send(1, "client/0", "server", MANY_BYTES, None)
    real_links.send(2, "server", "client/1", MANY_BYTES, None)
    for flow, target in ((0, "client/0"), (1, "server"), (2, "client/1")):
        progress(real_links, flow, target, 10_000)
    real_links.end_process("client/0")
    assert ended(before)
    real_links.stop(0, "server", "client/0")
    assert 10_000 <= real_links.stop(1, "client/0", "server") < MANY_BYTES
    # What the dead process had sent does not go on to arrive.
    found = real_links.progress(1, "server")
    progress(real_links, 2, "client/1", real_links.progress(2, "client/1") + 1_000_000)
    assert real_links.progress(1, "server") == found
    real_links.begin_process("client/0")
    assert arrives(real_links, 3, "client/0", "server")
    assert arrives(real_links, 4, "server", "client/0")
    after = process_of(real_links, "client/0", other_than=before)
    assert namespace_of(after) == namespace
    # Neither the killed process nor the broken transfers are failures of the emulation; all else still is.
    assert not [report for report in real_links.nodes.reports if "gone" in report or "broken" in report]
    os.kill(after, signal.SIGKILL)
    with pytest.raises(EmulationFailed, match="the process of client/0 has ended"):
        real_links.nodes.wait_for("nothing", ..., 60.0)


def events_of(run):
    return list(read_events(RunPaths(run).of("fedavg", 0).events))


@pytest.mark.release  # the moments of its rounds depend on what else the machine does
def test_a_client_that_is_killed_drops_out_at_that_moment_and_comes_back(tmp_path):
    crash = {"kind": "crash", "client": 3, "at": 0.6, "duration": 1.0}
    scenario = small("star-20ms", failures=[crash])
    scenario["training"].update(cohort=10, rounds=3, selection="fixed")
    runs = emulate(check(scenario), out=tmp_path / "run", train=False)
    for run in runs:
        events = [event for event in events_of(run) if event.client == 3]
        assert [(event.time, event.item) for event in events if event.kind == "failure"] == [
            (0.6, "crash"), (1.6, "restart"),
        ]  # fmt: skip
        (dropout,) = [event for event in events if event.kind == "dropout"]
        assert dropout.item == "crash"
        assert dropout.time == 0.6
        (dropped,) = [event for event in events if event.kind == "transfer_drop" and event.time == 0.6]
        assert dropped.item == "down"
        # Its new process receives and sends.
        assert {event.item for event in events if event.kind == "transfer_end"} == {"down", "up"}
        assert verify(run) == []
    assert gone(os.getpid())


@pytest.mark.release
def test_an_outage_longer_than_the_time_out_breaks_real_transfers(tmp_path):
    outage = {"kind": "outage", "link": ["internet", "client/0"], "at": 0.1, "duration": 1.5}
    scenario = small("star", failures=[outage])
    scenario["network"]["transport"]["timeouts"] = {"connection": "0.5 s", "first_wait": "2 s"}
    scenario["training"].update(cohort=10, rounds=1)
    runs = emulate(check(scenario), out=tmp_path / "run", train=False)
    for run in runs:
        events = events_of(run)
        broken = [event for event in events if event.kind == "transfer_break"]
        assert [(event.client, event.item, event.facts["cause"]) for event in broken] == [(0, "down", "connection")]
        assert [(event.item, event.time) for event in events if event.kind == "failure"][::2] == [
            ("outage", 0.1), ("repair", 1.6),
        ]  # fmt: skip
        assert [event.value for event in events if event.kind == "round_start"] == [10]
        assert verify(run) == []
    assert gone(os.getpid())
