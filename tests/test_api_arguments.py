"""A wrong argument from Python is refused, and nothing is written."""

import os

import pytest

import edgefl
from edgefl.errors import UserError

WRONG = {
    "scenario": "no_such_scenario",
    "out": "taken",
    "overrides": ["training.rounds"],
    "methods": ["unknown"],
    "device": "gpu",
    "engine": "fast",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_argument_is_refused_and_nothing_is_written(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("")
    arguments = {"scenario": "5g_100clients", "out": "run", "train": False, name: WRONG[name]}
    with pytest.raises(UserError, match=f"{name}: |unknown|no_such_scenario|PATH=VALUE|taken|engine"):
        edgefl.simulate(arguments.pop("scenario"), **arguments)
    assert os.listdir(tmp_path) == ["taken"]
