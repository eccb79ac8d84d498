"""What goes wrong during a run: broken parts, full disks, damaged files. Nothing that was finished is lost."""

from __future__ import annotations

import errno
import importlib
import json
import os
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from edgefl.cli import main
from edgefl.errors import UserError
from edgefl.experiment import NotWritten, RunsFailed, final_models, is_interrupted, resume, run
from edgefl.methods.codecs.base import CODECS
from edgefl.methods.codecs.quantise import Quantise
from edgefl.methods.fedavg import CrossEntropy, Mean
from edgefl.methods.fedavgm import FedAvgM
from edgefl.methods.fedbr import BlocksPayload
from edgefl.methods.fedprox import FedProx
from edgefl.methods.parts.client_state import ClientState
from edgefl.methods.parts.payload import Downlink, Part, Payload
from edgefl.methods.parts.server import SERVER_UPDATES
from edgefl.methods.recipe import METHODS
from edgefl.methods.scaffold import ControlVariate, ScaffoldRule
from edgefl.record.names import STATE
from edgefl.report import RunResult, verdict
from edgefl.rerun.verify import verify
from edgefl.scenario.components import BuildFault
from edgefl.scenario.loading import check
from edgefl.scheduling.blocks.base import BLOCK_SCHEDULERS
from edgefl.scheduling.blocks.schedulers import Random, RandomScheduler
from edgefl.training import personalisation

from ..small_runs import SMALL, Stop, tree

SOUND = ["fedavg", "fednova"]


def raising(*arguments, **options):
    raise KeyError("lost\nand gone")


def exiting(*arguments, **options):
    sys.exit(3)


def nothing(*arguments, **options):
    return None


RAISED, ENDED = r"KeyError: 'lost\\nand gone'$", "SystemExit: 3$"
BROKEN = [
    ("server update", FedAvgM, "update", raising, RAISED),
    ("server update", FedAvgM, "begin", exiting, ENDED),
    ("objective", FedProx, "loss", raising, RAISED),
    ("objective", FedProx, "adapt", exiting, ENDED),
    ("local rule", ScaffoldRule, "update", raising, RAISED),
    ("client state", ControlVariate, "after", raising, RAISED),
    ("codec up", Quantise, "encode", raising, RAISED),
    ("codec down", Quantise, "decode", raising, RAISED),
    ("payload", BlocksPayload, "uplink", raising, RAISED),
    ("block scheduler", RandomScheduler, "choose", raising, RAISED),
    ("block scheduler", RandomScheduler, "observe", exiting, ENDED),
    # What they must not return.
    ("server update", FedAvgM, "update", lambda self, p, a, s, f: p, "FedAvgM: update returned tensor"),
    ("server update", FedAvgM, "update", lambda self, p, a, s, f: (p[1:], s), r"expected a tensor of float32 \["),
    ("server update", FedAvgM, "begin", nothing, "server state None; expected tensors by name"),
    ("block scheduler", RandomScheduler, "choose", lambda self, r, c, f: dict.fromkeys(c, 5),
     "returned .*; expected 1 to 4 for clients"),
    ("block scheduler", RandomScheduler, "choose", lambda self, r, c, f: {}, "expected 1 to 4 for clients"),
    ("codec up", Quantise, "encode", lambda self, tensor, numbers: {"all": tensor.clone()},
     "encode returned .* bytes .* bytes says"),
    ("codec up", Quantise, "decode", lambda self, e, shape: torch.zeros(3), r"float32 \[3\]; expected float32 \["),
    ("payload", BlocksPayload, "downlink", lambda self, s, r, a, h: Downlink((), 9),
     "downlink returned alpha = 9; expected 1 to 4"),
]  # fmt: skip
"""The family, the class and the function that is broken, by what it is replaced, and what the message says."""


class ShortTeacher(Mean):
    """Broadcasts a teacher that is a model in round 1 and three numbers after it."""

    broadcasts = ("teacher",)

    def begin(self, parameters):
        return {"teacher": parameters}

    def update(self, parameters, arrivals, state, facts):
        after, _ = super().update(parameters, arrivals, state, facts)
        return after, {"teacher": after[:3].clone()}


class ModelAndTeacher(Payload):
    """Two models down, one up."""

    def downlink(self, sizes, round, alpha, held):
        parts = [Part("model", sizes.model_bytes, round), Part("teacher", sizes.model_bytes, round)]
        return Downlink(tuple(parts), sizes.blocks)


class ReadsTeacher(CrossEntropy):
    """Reads a teacher and ignores it."""

    frozen = frozenset({"teacher"})


class ReadsPrevious(CrossEntropy):
    """Reads the client's last model and ignores it."""

    frozen = frozenset({"previous"})


class Stateless(ClientState):
    """Lacks the vector that its loss reads."""

    def first(self, received, parameter_count):
        return {}


class Counting(FedProx):
    """Its operators depend on the numbers of a batch."""

    def loss(self, local, batch, context):
        found = super().loss(local, batch, context)
        return found._replace(total=found.total * len(batch.labels.unique()))


TEACHING = {"payload": ModelAndTeacher}
RECIPES = {
    "short-teacher": (
        {"objective": ReadsTeacher, "server": ShortTeacher(), **TEACHING},
        r"round 2, .*the frozen copy 'teacher' has 3 numbers; expected",
    ),
    "stateless": ({"objective": ReadsPrevious, "state": Stateless()}, r"round 1, .*'previous'"),
    "counting": ({"objective": Counting}, "round 1, measuring a local step: its loss or local rule calls unique"),
}
"""Recipes whose inputs cannot be put together, or whose steps cannot be counted, and what the message says."""
CASES = {f"{case[0]}-{case[2]}-{number}".replace(" ", "-"): case for number, case in enumerate(BROKEN)}


def entry_of(label, family, kind, attribute, function):
    """Registers a part that is broken there, and returns the entry of a method that has it."""
    if attribute == "downlink":  # that of a whole model is also called when the method is built
        wrong = function

        def function(self, sizes, round, alpha, held):
            asked = sizes, round, alpha, held
            return kind.downlink(self, *asked) if alpha is None else wrong(self, *asked)

    broken = type(kind)(kind.__name__, (kind,), {attribute: function, "__module__": __name__, "__qualname__": label})
    if family == "server update":
        SERVER_UPDATES.register(label)(broken)
        return {"method": "fedavg", "server": label}
    if family.startswith("codec"):
        CODECS.register(label)(broken)
        return {"method": "fedavg", "codec": {family.removeprefix("codec "): {"kind": label}}}
    if family == "block scheduler":
        spec = type(Random)("Spec", (Random,), {"start": lambda self, *of: broken(*of)})
        BLOCK_SCHEDULERS.register(label)(spec)
        return {"method": "fedbr", "scheduler": label}
    base, changes = {
        "objective": ("fedprox", {"objective": broken}),
        "local rule": ("scaffold", {"rule": broken}),
        "client state": ("fedavg", {"state": broken() if family == "client state" else None}),
        "payload": ("fedbr", {"payload": broken}),
    }[family]
    METHODS.register(label)(replace(METHODS[base], **changes))
    return {"method": label}


def scenario_of(*entries):
    """A small scenario with the sound methods around the entries."""
    data = json.loads(json.dumps(SMALL))
    data["training"] |= {"rounds": 2, "engine": {"kind": "sequential"}}
    data["data"] |= {"train": 64, "test": 16}
    return check(data | {"methods": [SOUND[0], *entries, SOUND[1]]})


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """The files of the sound methods' runs without a broken one beside them."""
    return tree(run(scenario_of(), out=tmp_path_factory.mktemp("sound") / "run"))


@pytest.fixture(scope="module")
def failed(tmp_path_factory):
    """One run directory of every case, and the error that the command ended with."""
    folder = tmp_path_factory.mktemp("failed") / "run"
    with pytest.MonkeyPatch.context() as patch:
        for registry in (METHODS, SERVER_UPDATES, CODECS, BLOCK_SCHEDULERS):
            registry.names()
            patch.setattr(registry, "_parts", dict(registry._parts))
        entries = [{**entry_of(label, *case[:-1]), "as": label} for label, case in CASES.items()]
        for label, (changes, _) in RECIPES.items():
            METHODS.register(label)(replace(METHODS["fedavg"], **changes))
        with pytest.raises(RunsFailed) as told:
            run(scenario_of(*entries, *RECIPES), out=folder)
        assert verify(folder) == []
    return folder, told.value


@pytest.mark.parametrize("label", [*CASES, *RECIPES])
def test_a_fault_of_a_part_is_reported_with_its_method(failed, label):
    folder, error = failed
    (entry,) = json.loads((folder / "summary.json").read_text())["methods"][label]
    message = entry["stop"]["message"]
    assert entry["stop"]["reason"] == "fault"
    assert message.startswith(f"method '{label}', ")
    assert re.search({**CASES, **RECIPES}[label][-1], message), message
    assert "\n" not in message
    assert f"{label}, seed 0: {message}" in error.messages


def test_the_other_methods_go_on_and_the_directory_is_complete(failed, sound):
    folder, error = failed
    faults = len(CASES) + len(RECIPES)
    assert f"{faults} of {faults + 2} runs ended by a fault" in str(error)
    assert not is_interrupted(folder)
    there = tree(folder)
    of_methods = [name for name in sound if name.startswith(tuple(f"{label}/" for label in SOUND))]
    assert len(of_methods) > 4
    assert [name for name in of_methods if there[name] != sound[name]] == []


def broken_after(monkeypatch, steps: int) -> None:
    """FedProx's loss works for so many steps."""
    calls, loss = [], FedProx.loss

    def broken(self, *arguments):
        calls.append(0)
        if len(calls) > steps:
            raise ZeroDivisionError("mu wanted\na divisor")
        return loss(self, *arguments)

    monkeypatch.setattr(FedProx, "loss", broken)
    # It counts, so it is no pure function, and its operators may not be recorded and called without it.
    monkeypatch.setattr(FedProx, "side_by_side", False)


def test_a_run_that_ended_by_a_fault_is_tried_again_once_the_part_is_fixed(small, tmp_path, monkeypatch):
    scenario, folder = small(methods=["fedavg", "fedprox"]), tmp_path / "run"
    expected = tree(run(scenario, out=tmp_path / "sound"))
    with monkeypatch.context() as broken:
        broken_after(broken, 25)
        with pytest.raises(RunsFailed, match=f"edgefl simulate --resume {folder} tries again") as told:
            run(scenario, out=folder)
        for part in ("1 of 2 runs", "method 'fedprox', client ", "round ", "local step ", "ZeroDivisionError"):
            assert part in str(told.value)
        assert isinstance(told.value.__cause__.__cause__, ZeroDivisionError)
        entry = json.loads((folder / "summary.json").read_text())["methods"]["fedprox"][0]
        assert 1 <= entry["rounds"] < 4
        with pytest.raises(RunsFailed, match="1 of 2 runs"):  # it is not fixed yet
            resume(folder)
    written = (folder / "fedavg/seed-0/events.parquet").stat().st_mtime_ns
    assert tree(resume(folder)) == expected
    assert (folder / "fedavg/seed-0/events.parquet").stat().st_mtime_ns == written, "what was sound is kept"
    with pytest.raises(UserError, match="nothing to resume: its run is finished"):
        resume(folder)


def test_a_fault_that_several_methods_share_is_stated_once(small, tmp_path, monkeypatch, capsys):
    def broken(*arguments, **options):
        raise KeyError("no such client")

    small()
    monkeypatch.setattr("edgefl.scheduling.selection.uniform.UniformSelector.pick", broken)
    changes, folder = ["--set", "methods=[fedavg, fedprox, fednova]"], tmp_path / "run"
    assert main(["simulate", str(tmp_path / "small.yaml"), "--out", str(folder), *changes]) == 1
    shown = capsys.readouterr()
    assert (shown.out + shown.err).count("no such client") == 1
    assert "Traceback" not in shown.err
    assert "fedavg, seed 0; fedprox, seed 0; fednova, seed 0: round 1, selection: KeyError" in shown.err
    assert verdict(RunResult(folder)).startswith("No method completed a round: there is nothing to compare.\n")
    assert verify(folder) == []


def test_a_part_that_cannot_be_built_is_named_before_anything_is_written(small, tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setattr(BlocksPayload, "downlink", raising)
        with pytest.raises(BuildFault, match=rf"^methods\.1: this part cannot be built: {RAISED}"):
            scenario_of("fedbr")
    small()
    monkeypatch.setattr(FedProx, "adapt", exiting)
    arguments = ["simulate", str(tmp_path / "small.yaml"), "--out", str(tmp_path / "run"), "--set", "methods=[fedprox]"]
    assert main(arguments) == 1
    assert "methods.0: this part cannot be built: SystemExit: 3" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.full
def test_a_fault_after_the_last_round_ends_its_method_alone(small, tmp_path, monkeypatch):
    changes = {"data__test": "partitioned", "personalisation": {"kind": "calibration"}, "training__rounds": 2}
    expected = tree(run(small(methods=SOUND, **changes), out=tmp_path / "expected"))
    counted, metric_of_one = [], personalisation.metric_of_one

    def failing(*arguments):
        counted.append(0)
        if len(counted) == 4:  # each method asks twice
            sys.exit(3)
        return metric_of_one(*arguments)

    for caller in (personalisation, final_models):
        monkeypatch.setattr(caller, "metric_of_one", failing)
    with pytest.raises(RunsFailed, match=r"1 of 3 runs .* method 'fedprox', round 2, .*: SystemExit: 3"):
        run(small(methods=[SOUND[0], "fedprox", SOUND[1]], **changes), out=tmp_path / "run")
    there = tree(tmp_path / "run")
    assert [name for name in expected if "/" in name and there[name] != expected[name]] == []


@pytest.mark.parametrize("protocol", ["synchronous", pytest.param("asynchronous", marks=pytest.mark.full)])
def test_an_error_outside_the_parts_of_a_method_is_a_fault_and_not_a_stall(
    small, tmp_path, monkeypatch, capsys, protocol
):
    small(protocol={"kind": protocol})

    def broken(self, flow):
        raise RuntimeError("no such flow")

    folder = str(tmp_path / "run")
    with monkeypatch.context() as fault:
        fault.setattr("edgefl.simulation.traffic.Traffic.flow_ended", broken)
        assert main(["simulate", str(tmp_path / "small.yaml"), "--no-train", "--out", folder]) == 1
    told = capsys.readouterr().err
    assert "fault: RuntimeError: no such flow; method 'fedavg', seed 0, round 1, " in told
    assert "stall" not in told
    assert main(["simulate", "--resume", folder, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["methods"]["fedavg"][0]["stop"]["reason"] == "rounds"


def full_disk(*arguments, **options):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("edgefl.experiment.checkpoints", "save"),
        pytest.param("edgefl.experiment.one_run", "write_rounds", marks=pytest.mark.full),
        pytest.param("edgefl.experiment.run", "write_summary", marks=pytest.mark.full),
        pytest.param("pyarrow", "write_table", marks=pytest.mark.full),
    ],
)
def test_a_full_disk_ends_a_run_that_can_be_resumed(small, tmp_path, monkeypatch, place, name):
    monkeypatch.setattr("edgefl.experiment.checkpoints.CHECKPOINT_EVERY", 2)
    scenario = small(methods=["scaffold"])
    expected = run(scenario, out=tmp_path / "expected")
    with monkeypatch.context() as disk:
        # The package has a function of its module's name.
        holder = pq.ParquetWriter if place == "pyarrow" else importlib.import_module(place)
        disk.setattr(holder, name, full_disk)
        with pytest.raises(NotWritten, match=r"No space left on device; finished work is kept; .* --resume"):
            run(scenario, out=tmp_path / "run")
    assert is_interrupted(tmp_path / "run")
    assert tree(resume(tmp_path / "run")) == tree(expected)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system that nobody can write")
def test_a_folder_that_cannot_be_written_is_a_mistake_of_the_user(small, tmp_path, capsys):
    small()
    assert main(["simulate", str(tmp_path / "small.yaml"), "--out", "/proc/self/run", "--no-train"]) == 2
    assert "the run directory cannot be written" in capsys.readouterr().err


def test_a_run_of_another_version_and_a_damaged_state_are_refused_for_resumption(small, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(small(), out=tmp_path / "run", train=False, listeners=[Stop(2)])
    state = tmp_path / "run" / STATE
    state.write_text(json.dumps({**json.loads(state.read_text()), "edgefl": "0.0.1"}))
    with pytest.raises(UserError, match=r"created by edgefl 0\.0\.1"):
        resume(tmp_path / "run")
    state.write_text("{")
    with pytest.raises(UserError, match="not JSON"):
        resume(tmp_path / "run")


def test_what_a_kill_left_before_the_first_run_is_no_obstacle(small, tmp_path):
    scenario, folder = small(), tmp_path / "run"
    expected = run(scenario, out=tmp_path / "expected", train=False)
    folder.mkdir()
    for name in ("unfinished.lock", "scenario.yaml", f".{STATE}.edgefl-unfinished"):
        (folder / name).write_text("{")
    assert tree(run(scenario, out=folder, train=False)) == tree(expected)


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    """A finished run without training."""
    return run(check(SMALL), out=tmp_path_factory.mktemp("timed") / "run", train=False)


@pytest.mark.parametrize("name", ["summary.json", "scenario.yaml", "fedavg/seed-0/events.parquet"])
def test_a_file_that_was_cut_short_is_named_by_verify_and_by_report(timed, tmp_path, capsys, name):
    path = Path(shutil.copytree(timed, tmp_path / "copy")) / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert main(["verify", str(tmp_path / "copy")]) in (1, 2)
    output = capsys.readouterr()
    assert path.name in output.out + output.err
    assert main(["report", str(tmp_path / "copy")]) in (0, 2)
    assert "fault:" not in output.err + capsys.readouterr().err
