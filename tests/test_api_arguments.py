"""A wrong argument from Python is refused by its name, and nothing is written."""

from __future__ import annotations

import inspect
import os

import pytest

import edgefl
from edgefl.errors import UserError

WRONG = {
    "scenario": [None, 3, ["a"]],
    "out": [None, 3, []],
    "overrides": [3, None, [3], {3: 4}, ["training.rounds"]],
    "methods": [3, [None], "fedavg", ["unknown"]],
    "device": [None, "gpu"],
    "engine": [3, "fast"],
    "train": [None, "no"],
    "listeners": [None, "yes", [edgefl.Listener]],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_argument_is_refused_by_its_name(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for value in WRONG[name]:
        arguments = {"scenario": "5g_100clients", "out": "run", "train": False, name: value}
        with pytest.raises(UserError) as refusal:
            edgefl.simulate(arguments.pop("scenario"), **arguments)
        expected = "unknown" if value == ["unknown"] else "PATH=VALUE" if value == ["training.rounds"] else f"{name}: "
        assert expected in str(refusal.value)
    assert os.listdir(tmp_path) == []


def test_every_argument_is_tried():
    assert set(inspect.signature(edgefl.simulate).parameters) == set(WRONG)


def test_other_calls_refuse_wrong_arguments_too():
    for value in (None, 3):
        with pytest.raises(UserError, match="path: "):
            edgefl.RunResult(value)
    with pytest.raises(UserError, match="overrides: "):
        edgefl.load_scenario("5g_100clients", 3)
