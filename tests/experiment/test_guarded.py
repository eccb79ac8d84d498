"""Listeners that the caller gives: whatever they do, the run and its files are the same."""

from __future__ import annotations

import os

import pytest
import torch

from edgefl.errors import UserError
from edgefl.experiment import resume, run
from edgefl.record.listener import Listener

from .test_ownership import tree


class Meddling(Listener):
    """Changes the process and what it is given, wherever it is called."""

    def began(self, runs, rounds):
        runs.clear()
        torch.set_default_dtype(torch.float64)
        os.chdir("/")

    def run_began(self, label, seed):
        torch.set_default_device("meta")

    def events(self, rows):
        rows.clear()
        torch.set_grad_enabled(False)

    def round_ended(self, row):
        object.__setattr__(row, "joules", -5.0)
        torch.backends.mkldnn.enabled = False

    def simulated(self, rounds):
        torch.set_default_dtype(torch.float64)

    def run_ended(self, result):
        result.bytes.by_fate["late"] = 10**15
        torch.set_default_dtype(torch.float64)


class Forking(Listener):
    def round_ended(self, row):
        os.fork()


@pytest.mark.parametrize("listener", [Meddling(), Forking()], ids=lambda each: type(each).__name__)
def test_a_run_is_the_same_whatever_a_listener_does(small, tmp_path, listener):
    scenario = small()
    run(scenario, out=tmp_path / "alone")
    run(scenario, out=tmp_path / "followed", listeners=[listener])
    assert tree(tmp_path / "followed") == tree(tmp_path / "alone")


@pytest.mark.parametrize(
    "error",
    [UserError("not mine"), OSError(28, "No space left", "/my.csv"), StopIteration("odd"), KeyError("a")],
    ids=repr,
)
@pytest.mark.parametrize("moment", ["began", "run_began", "events", "round_ended", "simulated", "run_ended"])
def test_an_error_of_a_listener_reaches_the_caller_as_it_is(small, tmp_path, error, moment):
    def fail(*_):
        raise error

    failing = Listener()
    setattr(failing, moment, fail)
    with pytest.raises(type(error)) as raised:
        run(small(), out=tmp_path / "run", listeners=[failing], train=False)
    assert raised.value is error
    if moment in ("round_ended", "simulated", "run_ended"):
        resume(tmp_path / "run")
