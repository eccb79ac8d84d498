"""What a part of one method changes in the process reaches neither the next method nor the caller."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
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
