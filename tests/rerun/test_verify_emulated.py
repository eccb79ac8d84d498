"""The log of an emulated run is checked with the laws of a real world: no computed seconds, but all bytes and sums."""

import copy
import json
import shutil
from dataclasses import replace

import pytest

from edgefl.cli.entry import main
from edgefl.experiment import run
from edgefl.network.transport import TransportSpec
from edgefl.record import RunPaths
from edgefl.record.emulation import Emulation, write_emulation
from edgefl.rerun.verify import verify
from edgefl.scenario.loading import check
from edgefl.simulation.work import Work

from ..record.test_files import MEASURED
from ..small_runs import SMALL
from .test_verify import first, rewrite


@pytest.fixture(scope="module")
def slower(tmp_path_factory):
    """A world that is slower than its model: links carry 97 % of their capacity, and training takes 1 % longer."""
    data = copy.deepcopy(SMALL)
    data["methods"] = [{"method": "fedadc", "overlap": True}, "fedbr"]
    data["training"]["rounds"] = 2
    build, pace = TransportSpec.build, Work.pace
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransportSpec, "build", lambda self, seed: replace(build(self, seed), efficiency=0.97))
        patch.setattr(Work, "pace", lambda self, slowdown, heat: pace(self, 1.01 * slowdown, heat))
        return run(check(data), out=tmp_path_factory.mktemp("emulated") / "run")


@pytest.fixture
def emulated(slower, tmp_path):
    """The same with an ``emulation.json`` for each method."""
    folder = shutil.copytree(slower, tmp_path / "run")
    for label in ("fedadc", "fedbr"):
        write_emulation(Emulation.model_validate(MEASURED), RunPaths(folder).of(label, 0).emulation)
    return folder


def changed(folder, change):
    """Rewrite the rows of a log."""
    rewrite(RunPaths(folder).of("fedadc", 0).events, change)


def test_measured_seconds_need_not_be_those_of_the_model(slower, emulated):
    assert verify(emulated) == []
    assert verify(slower)


@pytest.mark.full
def test_the_command_names_what_was_not_checked(emulated, capsys):
    assert main(["verify", str(emulated)]) == 0
    printed = capsys.readouterr().out
    assert "not simulated again, because its seconds were measured" in printed
    assert "same results when simulated again" not in printed


def lost_byte(rows):
    first(rows, kind="transfer_end")["bytes"] -= 1


def other_work(rows):
    first(rows, kind="compute_end")["flops"] *= 1.01


def other_model(rows):
    row = first(rows, kind="aggregation", round=2)
    row["detail"] = json.dumps({**json.loads(row["detail"]), "before": "0" * 32})


@pytest.mark.parametrize(
    "change", [lost_byte, lambda rows: rows.remove(first(rows, kind="compute_end")), other_work, other_model]
)
def test_bytes_order_sums_and_digests_are_checked(emulated, change):
    changed(emulated, change)
    assert verify(emulated)


def test_the_final_model_is_checked(emulated):
    seed = RunPaths(emulated)
    model, other = (seed.of(label, 0).final_model for label in ("fedadc", "fedbr"))
    model.write_bytes(other.read_bytes())
    assert verify(emulated) == ["fedadc, seed 0: final.safetensors is not the model from the last aggregation"]


@pytest.mark.full
def test_interfaces_carry_at_least_the_bytes_of_the_transfers(emulated):
    paths = RunPaths(emulated).of("fedadc", 0)
    moved = json.loads((emulated / "summary.json").read_text())["methods"]["fedadc"][0]["bytes"]
    exact = {"wire_bytes": {"down": moved["down"], "up": moved["up"]}}
    write_emulation(Emulation.model_validate(MEASURED | exact), paths.emulation)
    assert verify(emulated) == []
    exact["wire_bytes"]["up"] -= 1
    write_emulation(Emulation.model_validate(MEASURED | exact), paths.emulation)
    found = f"emulation.json has {moved['up'] - 1}, the log's transfers delivered {moved['up']}"
    assert verify(emulated) == [f"fedadc, seed 0: wire_bytes.up: {found}"]
