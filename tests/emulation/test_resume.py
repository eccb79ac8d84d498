"""An interrupted emulation goes on: its measured rounds are repeated exactly, the others are measured."""

from __future__ import annotations

import os

import pytest

from edgefl.emulation.emulate import emulate, resume
from edgefl.emulation.history import History
from edgefl.emulation.machine import in_namespaces
from edgefl.emulation.repeated_carrier import RepeatedCarrier
from edgefl.errors import UserError
from edgefl.record.emulation import read_emulation
from edgefl.record.events import Event
from edgefl.record.listener import EventLog
from edgefl.record.paths import RunPaths
from edgefl.rerun.verify import verify
from edgefl.scenario.loading import check

from ..small_runs import Rows, Stop
from .test_emulate import gone, small

needs_namespaces = pytest.mark.skipif(in_namespaces() is None, reason="network namespaces cannot be made here")

ASYNCHRONOUS = {"protocol": {"kind": "asynchronous", "buffer": 2, "concurrency": 4}}
CRASH = {"failures": [{"kind": "crash", "client": 2, "at": "0.2 s"}]}
BATTERY = {
    "fleet": [
        {
            "profile": "phone-low-end",
            "share": 1,
            "link": "wifi",
            "overrides": {"battery": {"capacity": "6 J", "start": {"low": 0.3, "high": 1.0}, "charging": "0.5 W"}},
        }
    ]
}


def until_the_end_of(rows, round):
    last = next(place for place, row in enumerate(rows) if row.kind == "round_end" and row.round == round)
    return rows[: last + 1]


@needs_namespaces
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(CRASH, marks=pytest.mark.release, id="crash"),
        pytest.param(ASYNCHRONOUS, marks=pytest.mark.release, id="asynchronous"),
        pytest.param(BATTERY, marks=pytest.mark.release, id="battery"),
    ],
)
def test_measured_rounds_stay_and_the_others_are_measured_now(tmp_path, changes):
    scenario = small("star-20ms", **changes)
    scenario["training"].update(rounds=3, cohort=4, selection="fixed" if changes is CRASH else "uniform")
    out, before, after = tmp_path / "run", Rows(), Rows()
    with pytest.raises(KeyboardInterrupt):
        # Three simulated rounds, then two that are measured.
        emulate(check(scenario), out=out, listeners=[before, Stop(3 + 2)])
    runs = resume(out, listeners=[after])
    begins = [place for place, row in enumerate(before.rows) if row.kind == "run"]
    measured = until_the_end_of(before.rows[begins[1] :], 2)
    assert until_the_end_of(after.rows, 2) == measured
    ends = [row.time for row in after.rows if row.kind == "round_end"]
    assert len(ends) == 3
    assert ends[2] > ends[1]
    files = [RunPaths(run).of("fedavg", 0) for run in runs]
    if changes not in (ASYNCHRONOUS, BATTERY):
        assert files[0].final_model.read_bytes() == files[1].final_model.read_bytes()
    emulation = read_emulation(files[0].emulation)
    assert emulation is not None
    assert emulation.after_round == 2
    assert verify(runs.measured) == []
    if changes is CRASH:
        # Its process does not come back with the new ones.
        assert not [row for row in after.rows if row.client == 2 and row.kind == "transfer_end" and row.time > 0.2]
    if changes is BATTERY:
        # The moment at which a battery is empty follows from the progress of a transfer.
        assert [row for row in measured if row.kind == "dropout" and row.item == "battery"]
        assert [row for row in measured if row.kind == "progress"]
    assert gone(os.getpid())


@needs_namespaces
@pytest.mark.release
def test_a_finished_emulation_stays_as_it_is(tmp_path, capsys):
    from edgefl.cli import main

    scenario, out = small("star"), tmp_path / "run"
    scenario["training"]["rounds"] = 1
    with pytest.raises(KeyboardInterrupt):
        emulate(check({**scenario, "seeds": [0, 1]}), out=out, listeners=[Stop(2 + 1)])
    for command in (["simulate", "--resume"], ["report"]):
        assert main([*command, str(out)]) == 2
        assert f"edgefl emulate --resume {out}" in capsys.readouterr().err
    # It was stopped after its only round, so it is complete.
    assert main(["emulate", "--resume", str(out)]) == 0
    capsys.readouterr()
    assert main(["emulate", "--resume", str(out)]) == 2
    assert "nothing to resume: its run is finished" in capsys.readouterr().err


@needs_namespaces
@pytest.mark.full
def test_an_emulation_that_was_stopped_in_its_simulation_goes_on(tmp_path, capsys):
    from edgefl.cli import main

    scenario, out, after = check(small("star")), tmp_path / "run", Rows()
    with pytest.raises(KeyboardInterrupt):
        emulate(scenario, out=out, dilation=2.0, listeners=[Stop(1)])
    assert RunPaths(tmp_path / "run-predicted").state.is_file()
    assert main(["simulate", "--resume", str(out)]) == 2
    assert f"edgefl emulate --resume {out}" in capsys.readouterr().err
    runs = resume(out, listeners=[after])
    # The rest of the simulation, and then all of the emulation, with the choices of the first command.
    assert [row.round for row in after.rows if row.kind == "round_end"] == [1, 2, 1, 2]
    files = [RunPaths(run).of("fedavg", 0) for run in runs]
    assert files[0].final_model.read_bytes() == files[1].final_model.read_bytes()
    emulation = read_emulation(files[0].emulation)
    assert emulation is not None
    assert emulation.dilation == 2.0
    assert verify(runs.measured) == verify(runs.predicted) == []


def test_a_simulation_is_not_resumed_as_an_emulation(tmp_path):
    from edgefl.experiment import run

    scenario = small("star")
    with pytest.raises(KeyboardInterrupt):
        run(check(scenario), out=tmp_path / "run", listeners=[Stop(1)])
    if in_namespaces() is None:
        pytest.skip("network namespaces cannot be made here")
    with pytest.raises(UserError, match=f"is no emulation; to continue: edgefl simulate --resume {tmp_path / 'run'}"):
        resume(tmp_path / "run")


class Carrier:
    """Remembers what it was asked for, in order."""

    def __init__(self):
        self.asked = []

    def __getattr__(self, name):
        return lambda *arguments: self.asked.append((name, *arguments))


def test_a_carrier_carries_nothing_during_the_repetition_and_then_brings_its_links_up_to_date():
    rows = [
        Event(0.0, "run"),
        *(Event(0.5, "progress", flow=flow, bytes=bytes) for flow, bytes in ((1, 20.0), (0, 99.0), (1, 30.0))),
        Event(1.0, "transfer_drop", flow=1, bytes=77.0),
    ]
    history, log, carrier = History(rows, trains=False), EventLog([]), Carrier()
    history.follow(log)
    started = []

    def start():
        if not started:
            started.append(True)
            repeated.prepare()
            carrier.open_connections()
            repeated.go_live()

    repeated = RepeatedCarrier(carrier, history, start)
    for flow in range(4):
        repeated.send(flow, "server", f"client/{flow}", 1000, None)
    assert [repeated.progress(1, "client/1"), repeated.progress(0, "client/0")] == [20, 99]
    assert repeated.progress(1, "client/1") == 30
    repeated.arrived(0)
    assert (repeated.progress(1, "client/1"), repeated.stop(1, "server", "client/1")) == (77, 77)
    repeated.set_capacities({("a", "b"): 1.0, ("b", "c"): 2.0})
    repeated.set_capacities({("a", "b"): 3.0})
    for node in ("client/5", "client/6"):
        repeated.end_process(node)
    repeated.begin_process("client/5")
    assert carrier.asked == []
    for row in rows:
        log.write(row.time, row.kind)
    repeated.send(4, "server", "client/4", 1000, None)
    assert carrier.asked == [
        ("set_capacities", {("a", "b"): 3.0, ("b", "c"): 2.0}),
        ("end_process", "client/6"),
        ("open_connections",),
        ("send", 2, "server", "client/2", 1000, None),
        ("send", 3, "server", "client/3", 1000, None),
        ("send", 4, "server", "client/4", 1000, None),
    ]


def test_the_rows_of_the_log_order_moments_that_are_equal():
    rows = [
        Event(0.0, "run"),
        Event(1.0, "compute_start", client=1),
        Event(1.0, "transfer_end", flow=0),
        Event(2.0, "transfer_drop", flow=1, bytes=77.0),
        Event(2.0, "compute_end", client=1),
        Event(2.0, "round_end", round=1),
    ]
    history, log = History(rows, trains=False), EventLog([])
    assert not history.active
    history.follow(log)
    log.write(0.0, "run")
    assert (history.active, history.rounds, history.delivered(1)) == (True, 1, 77)
    # The transfer ended after the row of an event at the same moment; before any later event it comes first.
    assert [history.comes_before(event) for event in (0.9, 1.0, 1.1)] == [False, False, True]
    log.write(1.0, "compute_start")
    assert history.comes_before(1.0)
    assert history.take().flow == 0
    assert not history.comes_before(9.0)
    for _ in range(4):
        assert history.active
        log.write(2.0, "idle")
    assert not history.active
    assert History(rows, trains=True).rounds == 1
