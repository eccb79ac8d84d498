"""What a part of one method changes in the process reaches neither the next method nor the caller."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import types
import warnings
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from edgefl.diagnosis.diagnose import diagnose
from edgefl.experiment import RunsFailed, run
from edgefl.methods.objectives.cross_entropy import CrossEntropy
from edgefl.methods.recipe import METHODS
from edgefl.planning import plan
from edgefl.plug_ins import PlugIns
from edgefl.process_state import SETTINGS
from edgefl.rerun.replay import replay
from edgefl.rerun.sensitivity.retiming import write_sensitivity
from edgefl.rerun.verify import verify
from edgefl.scenario import rehearse
from edgefl.scenario.loading import check
from edgefl.torch_settings import OF_A_THREAD, OF_THE_PROCESS, settings

from ..small_runs import SMALL, tree
from ..test_process_state import CHANGES, TABLES, other

DEEDS = {
    **{
        f"PyTorch's {name}": lambda name=name: TABLES[name][name].write(torch, other(name))
        for name in TABLES
        if not name.startswith("autocast_cuda")
    },
    **{f"Python's {name}": lambda name=name: CHANGES[name]("ignore") for name in CHANGES if name != "blocked signals"},
    "default device": lambda: torch.set_default_device("meta"),
    "inference": lambda: torch.inference_mode().__enter__(),
    "no gradients": lambda: torch.no_grad().__enter__(),
    "environment": os.environ.clear,
    "working directory": lambda: os.chdir("/"),
    "NumPy": lambda: np.seterr(all="raise"),
    "signals": lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    "recursion": lambda: sys.setrecursionlimit(150 + len(__import__("inspect").stack())),
    "warnings": lambda: warnings.simplefilter("error"),
    "garbage": gc.disable,
    **{f"closed {name}": lambda name=name: getattr(sys, name).close() for name in ("stdin", "stdout", "stderr")},
    **{f"no {name}": lambda name=name: setattr(sys, name, None) for name in ("stdin", "stdout", "stderr")},
}
PLACES = ("adapt", "loss", "evaluation_mode")


def scenario(*methods):
    data = json.loads(json.dumps(SMALL))
    data["training"] |= {"rounds": 1, "engine": {"kind": "sequential"}}
    data["data"] |= {"train": 64, "test": 16}
    return check(data | {"methods": [*methods, "fedavg"]})


def observed():
    """Everything that a part may have changed."""
    return {
        "torch": (settings(OF_THE_PROCESS), settings(OF_A_THREAD), torch.get_default_device()),
        "python": {name: setting.read() for name, setting in SETTINGS.items()},
        "surroundings": (dict(os.environ), os.getcwd(), np.geterr()),
        "streams": (sys.stdin, sys.stdout, sys.stderr, sys.stdout.closed, sys.stderr.closed),
    }


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return tree(run(scenario(), out=tmp_path_factory.mktemp("alone") / "run") / "fedavg")


@pytest.mark.parametrize("place", PLACES)
def test_no_deed_of_a_part_reaches_another_method_or_the_caller(place, alone, tmp_path, monkeypatch):
    METHODS.names()
    monkeypatch.setattr(METHODS, "_parts", dict(METHODS._parts))
    labels = []
    for number, deed in enumerate(DEEDS.values()):

        def act(self, *arguments, deed=deed, **options):
            deed()
            return getattr(CrossEntropy, place)(self, *arguments, **options)

        broken = type(CrossEntropy)("Broken", (CrossEntropy,), {place: act, "__module__": __name__})
        labels.append(f"deed-{number}")
        METHODS.register(labels[-1])(replace(METHODS["fedavg"], objective=broken))
    before = observed()
    folder = tmp_path / "run"
    with suppress(RunsFailed):  # a part's deed may be its own method's fault
        run(scenario(*labels), out=folder)
    after = observed()
    assert after == before
    assert tree(folder / "fedavg") == alone


@pytest.fixture
def plug_ins(tmp_path, monkeypatch):
    """Installs methods, each in a module that does something while it is imported."""
    folder = tmp_path / "site-packages"
    metadata = folder / "mine-0.1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 0.1\n")
    code = "from edgefl.methods.recipe import METHODS\nimport deeds_of_plug_ins\ndeeds_of_plug_ins.DEEDS[{}]()\n"
    names = [f"imported-{number}" for number in range(len(DEEDS))]
    for number in range(len(DEEDS)):
        (folder / f"mine_{number}.py").write_text(f"{code.format(number)}Part = METHODS['fedavg']\n")
    points = [f"{name} = mine_{number}:Part" for number, name in enumerate(names)]
    (metadata / "entry_points.txt").write_text("\n".join(["[edgefl.methods]", *points]))
    monkeypatch.syspath_prepend(str(folder))
    deeds = types.ModuleType("deeds_of_plug_ins")
    deeds.DEEDS = list(DEEDS.values())
    monkeypatch.setitem(sys.modules, deeds.__name__, deeds)
    old = METHODS._plug_ins
    monkeypatch.setattr(METHODS, "_plug_ins", PlugIns(METHODS.noun, old._group, old._check))
    monkeypatch.setattr(METHODS, "_parts", dict(METHODS._parts))
    yield names
    for number in range(len(DEEDS)):
        sys.modules.pop(f"mine_{number}", None)


def test_no_deed_of_an_import_reaches_its_method_another_or_the_caller(plug_ins, alone, tmp_path):
    before = observed()
    for name, deed in zip(plug_ins, DEEDS, strict=True):
        assert METHODS[name]
        assert observed() == before, deed
    folder = run(scenario(*plug_ins), out=tmp_path / "run")
    assert observed() == before
    assert tree(folder / "fedavg") == alone
    models = [(folder / name / "seed-0" / "final.safetensors").read_bytes() for name in plug_ins]
    assert set(models) == {alone["seed-0/final.safetensors"]}


class Wandering(CrossEntropy):
    """Changes the process whenever a model is adapted: in a check, a plan, a run and its second execution."""

    def adapt(self, model):
        os.chdir("/")
        os.environ["WANDERING"] = "1"
        torch.set_default_dtype(torch.float64)
        torch.backends.mkldnn.enabled = False
        sys.stdout.close()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return super().adapt(model)


def test_checks_plans_and_second_executions_leave_the_callers_process_alone(tmp_path, monkeypatch):
    METHODS.names()
    monkeypatch.setattr(METHODS, "_parts", dict(METHODS._parts))
    METHODS.register("wandering")(replace(METHODS["fedavg"], objective=Wandering))
    monkeypatch.chdir(tmp_path)
    wandering = scenario("wandering", {"method": "wandering", "as": "again"})
    acts = {
        "check": lambda: rehearse(wandering),
        "plan": lambda: plan(wandering),
        "run": lambda: run(wandering, out=Path("run")),
        "verify": lambda: verify(Path("run")),
        "replay": lambda: replay(Path("run"), {}, Path("replayed")),
        "sensitivity": lambda: write_sensitivity(Path("run")),
        "diagnose": lambda: list(diagnose(Path("run"), batches=1)),
    }
    before = observed()
    for name, act in acts.items():
        found = act()
        assert observed() == before, name
        if name == "verify":
            assert found == []
