"""Which quotas stand for the devices of a scenario, and what is refused."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import simpy

from edgefl import user_code
from edgefl.cpu_quota import CpuQuota
from edgefl.data.federated import shard_sizes
from edgefl.emulation.trainers import Plan, Trainer, check_real_training, quotas_of
from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.fleet import assign
from edgefl.network.flow_network import FlowNetwork
from edgefl.record import RunPaths
from edgefl.record.events import Event
from edgefl.record.paths import SeedPaths
from edgefl.record.tables import read_events
from edgefl.scenario import Scenario, load_scenario
from edgefl.simulation.clock import Clock
from edgefl.simulation.setup import Setup
from edgefl.training.job import JobId, TrainingJob

SCENARIO = """
name: small
seeds: [0]
data: {name: digits, images: 64, clients: 2, partition: {kind: iid}}
model: {name: cnn, norm: group}
training: {rounds: 1, cohort: 2, local: {epochs: 1, batch: 8, lr: 0.05}}
fleet: [{profile: raspberry-pi-5, share: 1.0, link: lan, overrides: {compute: {cpu_quota: 0.5}}}]
network:
  topology: {kind: star, server: {down: 100 Mbit/s, up: 100 Mbit/s}, latency: 0 s}
  links: {lan: {down: 50 Mbit/s, up: 50 Mbit/s}}
methods: [{method: fedavg}]
"""


NET = """
import torch

class Net(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Flatten(), torch.nn.Linear(784, 20), torch.nn.ReLU(), torch.nn.Linear(20, 10))
"""


def scenario(tmp_path: Path, *changes: str) -> Scenario:
    file = tmp_path / "small.yaml"
    file.write_text(SCENARIO, encoding="utf-8")
    return load_scenario(str(file), list(changes))


def test_a_slower_clock_divides_the_quota(tmp_path: Path) -> None:
    small = scenario(tmp_path)
    assert quotas_of(assign(small.fleet, 2, 0), 2.0) == [0.25, 0.25]


def test_a_profile_without_a_quota_is_refused_by_name(tmp_path: Path) -> None:
    small = scenario(tmp_path, "fleet.0.overrides=null")
    with pytest.raises(UserError, match="'raspberry-pi-5' has none; expected a profile of `edgefl profile measure"):
        check_real_training(small, 1.0)


def test_a_quota_that_no_group_can_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"expected quotas from 0\.01 to 1 processors, found 5 for 'raspberry-pi-5'"):
        check_real_training(scenario(tmp_path), 0.1)


def test_too_few_processors_are_refused_with_the_dilation_that_suffices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    small = scenario(tmp_path, "fleet.0.overrides.compute.cpu_quota=1")
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    with pytest.raises(UserError, match=r"need 2 processors, this machine has 1; expected --dilate 2 or more"):
        check_real_training(small, 1.0)


def test_seconds_that_no_device_computes_are_refused(tmp_path: Path) -> None:
    small = scenario(tmp_path, "cost={kind: paper}")
    with pytest.raises(UserError, match="expected kind: measured with --compute real"):
        check_real_training(small, 1.0)


@pytest.fixture(name="ends")
def ends_fixture() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def test_a_job_is_trained_until_an_order_arrives(tmp_path: Path, ends: tuple[socket.socket, socket.socket]) -> None:
    trainer = Trainer(Plan(scenario(tmp_path), "fedavg", 0, 4), ends[0])
    trainer.warm_up()
    assert trainer.train(client=1, round=0, dispatch=4, alpha=4, steps=3)
    ends[1].sendall(b"stop\n")
    assert not trainer.train(client=1, round=0, dispatch=4, alpha=4, steps=3)


def test_a_server_warms_up_with_the_data_of_all(tmp_path: Path, ends: tuple[socket.socket, socket.socket]) -> None:
    uneven = scenario(tmp_path, "methods=[central]", "data.partition={kind: quantity}")
    assert shard_sizes(uneven.data, 1).argmax() == 1
    Trainer(Plan(uneven, "central", 1, 4), ends[0]).warm_up()


def test_a_users_own_model_is_trained(
    tmp_path: Path, ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")
    own = scenario(tmp_path, f"model={{python: {tmp_path / 'net.py'}:Net}}")
    monkeypatch.setattr(user_code, "_allowed", set())  # as in a new process
    assert Trainer(Plan(own, "fedavg", 0, 4), ends[0]).train(client=0, round=0, dispatch=0, alpha=4, steps=2)


class Training:
    """A testbed whose clients train for a fixed time, whatever is predicted."""

    trains = True

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.slowdowns: list[float] = []
        self.stopped: list[JobId] = []
        self.clock = Clock()

    def network(self, topology, *, observer, transport) -> FlowNetwork:  # type: ignore[no-untyped-def]
        return FlowNetwork(self.clock, topology, observer=observer, transport=transport)

    def train(self, job: TrainingJob, slowdown: float) -> simpy.Event:
        self.slowdowns.append(slowdown)
        return self.clock.timeout(self.seconds)

    def stop_training(self, job: TrainingJob) -> None:
        self.stopped.append(job.id)


def events_of(scenario: Scenario, testbed: Training, out: Path) -> list[Event]:
    @contextmanager
    def made(setup: Setup, paths: SeedPaths) -> Iterator[Training]:
        yield testbed

    run(scenario, out=out, train=False, testbed=made)
    return list(read_events(RunPaths(out).of("fedavg", 0).events))


def test_the_log_has_the_seconds_that_training_took(tmp_path: Path) -> None:
    testbed = Training(7.0)
    events = events_of(scenario(tmp_path), testbed, tmp_path / "run")
    ends = [event for event in events if event.kind == "compute_end"]
    assert [event.seconds for event in ends] == pytest.approx([7.0, 7.0])
    assert testbed.slowdowns == pytest.approx([1.0, 1.0])
    assert testbed.stopped == []


def test_training_that_a_deadline_cuts_off_is_stopped(tmp_path: Path) -> None:
    testbed = Training(1e6)
    small = scenario(tmp_path, "protocol={kind: synchronous, deadline: 2 s}")
    events = events_of(small, testbed, tmp_path / "run")
    assert sorted(job.client for job in testbed.stopped) == [0, 1]
    assert [event.kind for event in events if event.kind.startswith("compute_")].count("compute_drop") == 2


@pytest.mark.release
def test_clients_train_under_their_quotas(tmp_path: Path) -> None:
    from edgefl.emulation.emulate import emulate
    from edgefl.emulation.machine import check, missing

    try:
        with CpuQuota():
            pass
    except UserError as error:
        pytest.skip(str(error))
    if lack := missing(check()):
        pytest.skip(lack)
    small = scenario(tmp_path, "training.local.epochs=20")
    measured = emulate(small, out=tmp_path / "run", dilation=1.0, compute="real").measured
    ends = [event for event in read_events(RunPaths(measured).of("fedavg", 0).events) if event.kind == "compute_end"]
    assert len(ends) == 2
    assert all(event.seconds > 0 for event in ends)
    assert not any(folder.exists() for folder in Path("/sys/fs/cgroup/cpu").glob(f"edgefl-{os.getpid()}-*"))
