"""A scenario with one mistake runs without training, or gives one message that names its place."""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.rerun.verify import verify
from edgefl.scenario.loading import check

from ..small_runs import SMALL

SAID = {**SMALL, "training": {**SMALL["training"], "rounds": 1}, "methods": ["fedavg", {"method": "fedbr", "as": "b"}]}
MISTAKES = [
    None,
    True,
    -1,
    0,
    0.5,
    2,
    "",
    "x",
    "fedavg",
    "uniform",
    "40 mbit/s",
    "3 s",
    "nan",
    [],
    [2],
    {},
    {"kind": 1},
]


def nodes(data, path=()):
    yield path
    if isinstance(data, dict | list):
        for key in data if isinstance(data, dict) else range(len(data)):
            yield from nodes(data[key], (*path, key))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    st.sampled_from([path for path in nodes(SAID) if path]),
    st.sampled_from(["replace", "replace", "remove", "rename", "add"]),
    st.sampled_from(MISTAKES),
)
def test_a_mutated_scenario_runs_or_gives_one_message(path, kind, mistake):
    data = copy.deepcopy(SAID)
    parent = data
    for key in path[:-1]:
        parent = parent[key]
    key = path[-1]
    if kind == "replace":
        parent[key] = mistake
    elif kind == "remove" or isinstance(parent, list):
        del parent[key]
    elif kind == "rename":
        parent[f"{key}x"] = parent.pop(key)
    else:
        parent["surplus"] = mistake
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        message = None
        try:
            run(check(data, file="my.yaml"), out=out, train=False)
        except UserError as error:
            message = str(error)
        if message is None:
            assert verify(out) == []
        else:
            assert str(path[0]) in message or "surplus" in message
            assert "Input should" not in message, "a message of pydantic's own"
            assert not out.exists()
