"""A wrong argument from Python is refused by its name, and nothing is written."""

from __future__ import annotations

import inspect
import os

import pytest

import edgefl
from edgefl.errors import UserError

WRONG = {
    "scenario": [None, 3, b"small", ["a"], object(), "\0"],
    "out": [None, 3, b"x", [], "a\0b", "a\nb", "\x1b[31m", "x" * 5000, "~nobody-here/x"],
    "overrides": [3, None, [3], [None], {3: 4}, {None: 1}, object(), 1.5, b"a=1", ["training.rounds"], "a"],
    "methods": [3, [None], "fedavg", [3], {"fedavg": 1}, object(), ["unknown"], b"x"],
    "device": [None, 3, "gpu", ["cpu"], object()],
    "engine": [3, "fast", ["auto"], object()],
    "train": [None, 1, "no"],
    "listeners": [None, 3, "yes", object(), print, [print], [edgefl.Listener]],
}


def named(name, value):
    """The part of a message that says what is wrong."""
    if name == "scenario" and value == "\0":
        return "not a valid file name"
    if name == "overrides" and value in (["training.rounds"], "a"):
        return "expected PATH=VALUE"
    return "unknown" if value == ["unknown"] else f"{name}: expected"


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_wrong_argument_is_refused_by_its_name(name, value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = {"scenario": "5g_100clients", "out": "run", "train": False, name: value}
    with pytest.raises(UserError) as refusal:
        edgefl.simulate(arguments.pop("scenario"), **arguments)
    if not str(value).startswith("~"):
        assert named(name, value) in str(refusal.value)
    assert os.listdir(tmp_path) == []


def test_every_argument_is_tried():
    assert set(inspect.signature(edgefl.simulate).parameters) == set(WRONG)


@pytest.mark.parametrize("value", [None, 3, b"x", "\0", object()])
def test_a_run_result_of_no_path_is_refused(value):
    with pytest.raises(UserError, match="path: expected a path"):
        edgefl.RunResult(value)


@pytest.mark.parametrize("value", WRONG["overrides"])
def test_wrong_overrides_of_a_scenario_are_refused(value):
    with pytest.raises(UserError, match=r"overrides: expected|expected PATH=VALUE"):
        edgefl.load_scenario("5g_100clients", value)
