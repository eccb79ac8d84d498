"""Python files run for a scenario that the user runs by path, and for no run directory that somebody sent."""

from __future__ import annotations

import copy
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from edgefl import user_code
from edgefl.cli.entry import main
from edgefl.data.federated import load_federated
from edgefl.errors import UserError
from edgefl.experiment import go_on, run
from edgefl.experiment.final_models import read_model
from edgefl.experiment.wiring import skeleton
from edgefl.models.registry import initial_vector
from edgefl.record.events import Listener
from edgefl.scenario import load_scenario
from edgefl.yaml_file import dump_yaml

from ..small_runs import SMALL

NET = """
import os
from torch import nn

if "EDGEFL_MARK" in os.environ:
    open(os.environ["EDGEFL_MARK"], "a").write("imported")


class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width)
        self.drop, self.head = nn.Dropout(0.1), nn.Linear(width * 64, 4)

    def forward(self, inputs):
        return self.head(self.drop(self.norm(self.stem(inputs)).relu().flatten(1)))
"""

DATA = """
import numpy as np


def load():
    rng = np.random.default_rng(0)
    labels = np.arange(200) % 4
    inputs = rng.normal(size=(200, 1, 8, 8)) + labels[:, None, None, None]
    return {"train": (inputs[:160], labels[:160]), "test": (inputs[160:], labels[160:])}
"""


METHOD = """
from pydantic import Field

from edgefl.methods.fedavg import CrossEntropy, Mean
from edgefl.methods.parts.local_step import Sgd
from edgefl.methods.recipe import Recipe


class Scaled(CrossEntropy):
    strength: float = Field(default=1.0, gt=0, description="factor on the loss")

    def loss(self, local, batch, context):
        found = super().loss(local, batch, context)
        return found._replace(total=found.total * self.strength)


class Steps(Sgd):
    pass


MINE = Recipe(summary="a scaled loss", paper="ours", objective=Scaled, rule=Sgd, server=Mean())
"""


class Ending(Listener):
    """Interrupts a run after its first round."""

    def round_ended(self, row):
        raise KeyboardInterrupt


def written(folder: Path) -> Path:
    """A scenario with a model, data and methods from Python files."""
    folder.mkdir()
    (folder / "net.py").write_text(NET)
    (folder / "data.py").write_text(DATA)
    scenario = copy.deepcopy(SMALL) | {"model": {"python": "net.py:Net", "args": {"width": 3}}}
    scenario["data"] = {"python": "data.py:load", "clients": 8}
    (folder / "mine.py").write_text(METHOD)
    other = {"method": "fedavg", "as": "own", "local": {"optimizer": {"python": "mine.py:Steps"}}}
    scenario["methods"] = ["fedavg", {"python": "mine.py:MINE"}, {"python": "mine.py:MINE", "strength": 2, "as": "two"}]
    scenario["methods"] += [other]
    scenario["training"]["rounds"] = 2
    (folder / "my.yaml").write_text(dump_yaml(scenario), encoding="utf-8")
    return folder / "my.yaml"


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    """The scenario, and its finished run."""
    folder = tmp_path_factory.mktemp("python")
    scenario = written(folder / "work")
    run(load_scenario(scenario), out=folder / "run", engine="sequential")
    return scenario, folder / "run"


@pytest.fixture(autouse=True)
def nothing_allowed_yet(monkeypatch):
    """As in a process of its own."""
    monkeypatch.setattr(user_code, "_allowed", set())


def test_the_final_model_loads_into_its_class_and_begins_another_run(mine, tmp_path):
    scenario, folder = mine
    file = folder / "fedavg/seed-0/final.safetensors"
    namespace: dict[str, Any] = {}
    exec(NET, namespace)
    net = namespace["Net"](width=3)
    net.load_state_dict(load_file(file))
    net.eval()
    data = load_federated(load_scenario(scenario).data, 0)
    accuracy = (net(data.evaluation.inputs).argmax(1) == data.evaluation.labels).float().mean().item()
    final = json.loads((folder / "summary.json").read_text())["methods"]["fedavg"][0]["accuracy"]["final"]
    assert accuracy == pytest.approx(final, abs=1e-6)
    again = load_scenario(scenario, [f"model.weights={file}"])
    first, expected = initial_vector(skeleton(again), 0), read_model(file, skeleton(again))
    torch.testing.assert_close(first, expected, rtol=0, atol=0)


def sent(mine, tmp_path: Path, change: str | None = None) -> tuple[Path, Path]:
    """The scenario's folder and the run directory in other places; ``change``: what is appended to its model's file."""
    scenario, folder = mine
    work, received = tmp_path / "work", tmp_path / "received"
    shutil.copytree(scenario.parent, work)
    shutil.copytree(folder, received)
    file = received / "scenario.yaml"
    file.write_text(file.read_text().replace(str(scenario.parent), str(work)))
    if change is not None:
        (work / "net.py").write_text(NET + change)
    return work, received


def test_a_finished_run_with_own_files_goes_on(mine, tmp_path):
    _, folder = sent(mine, tmp_path)
    go_on(folder, {"training.rounds": 3})
    entries = json.loads((folder / "summary.json").read_text())["methods"]
    rounds = {label: seeds[0]["rounds"] for label, seeds in entries.items()}
    assert rounds == {"fedavg": 3, "mine": 3, "two": 3, "own": 3}


def test_a_model_and_data_from_files_train(mine):
    entry = json.loads((mine[1] / "summary.json").read_text())
    assert entry["methods"]["fedavg"][0]["accuracy"]["final"] > 0.4
    fields = {"data.python", "model.spec.python", "methods.1.python", "methods.2.python"}
    fields |= {"methods.own.local.optimizer.python"}  # and methods.3.optimizer
    assert {field for field in entry["inputs"] if field.endswith("python")} == fields
    models = [(mine[1] / label / "seed-0/final.safetensors").read_bytes() for label in ("fedavg", "mine", "two")]
    assert models[0] == models[1] != models[2]


@pytest.mark.parametrize(
    "command",
    [
        ["verify", "RUN"],
        ["report", "RUN"],
        ["report", "RUN", "--html", "OUT"],
        ["timeline", "RUN", "--method", "fedavg", "-o", "OUT"],
    ],
    ids=" ".join,
)
def test_what_reads_a_run_never_executes_its_files(mine, tmp_path, monkeypatch, capsys, command):
    _, received = sent(mine, tmp_path)
    words = {"RUN": str(received), "OUT": str(tmp_path / "out")}
    mark = tmp_path / "mark"
    monkeypatch.setenv("EDGEFL_MARK", str(mark))
    assert main([words.get(word, word) for word in command]) == 0
    assert not mark.exists()
    if command[0] == "verify":
        assert "not simulated again, because its Python files are not executed" in capsys.readouterr().out


def test_verify_simulates_it_again_if_its_files_are_trusted(mine, capsys):
    assert main(["verify", str(mine[1]), "--trust"]) == 0
    assert "same results when simulated again" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["replay"], ["replay", "--sensitivity"], ["diagnose"]], ids=" ".join)
def test_a_changed_file_is_not_executed_unless_it_is_trusted(mine, tmp_path, capsys, command):
    work, received = sent(mine, tmp_path, change="raise SystemExit(7)")
    out = ["--out", str(tmp_path / "again")] if command == ["replay"] else []
    assert main([command[0], str(received), *command[1:], *out]) == 2
    message = "this Python file is not executed, since it is not the file that the run began with; read it"
    assert f"{work / 'net.py'}: model.spec.python: {message}" in capsys.readouterr().err
    assert not (tmp_path / "again").exists()


def test_a_file_within_the_run_directory_is_not_executed_though_it_has_the_digest(mine, tmp_path, capsys):
    work, received = sent(mine, tmp_path)
    shutil.copy(work / "net.py", received / "net.py")
    file = received / "scenario.yaml"
    file.write_text(file.read_text().replace(str(work / "net.py"), str(received / "net.py")))
    assert main(["replay", str(received), "--out", str(tmp_path / "again")]) == 2
    assert "it is part of the run directory" in capsys.readouterr().err
    assert main(["replay", str(received), "--out", str(tmp_path / "again"), "--trust"]) == 0


COPIES = [
    *("data.python.py", "methods.1.python.py", "methods.2.python.py", "methods.3.optimizer.py", "model.spec.python.py")
]


@pytest.mark.full
def test_a_run_keeps_copies_of_its_files_and_so_does_its_replay(mine, tmp_path):
    scenario, folder = mine
    main(["replay", str(folder), "--out", str(tmp_path / "again")])
    for run_directory in (folder, tmp_path / "again"):
        assert sorted(os.listdir(run_directory / "inputs")) == COPIES
        for copied, file in zip(COPIES, ("data.py", "mine.py", "mine.py", "mine.py", "net.py"), strict=True):
            assert (run_directory / "inputs" / copied).read_bytes() == scenario.with_name(file).read_bytes()
        assert main(["verify", str(run_directory)]) == 0


@pytest.mark.full
def test_verify_needs_the_copies_and_not_the_files_themselves(mine, tmp_path, capsys):
    work, received = sent(mine, tmp_path)
    shutil.rmtree(work)
    assert main(["verify", str(received)]) == 0
    (received / "inputs/model.spec.python.py").write_text(NET + "# changed")
    assert main(["verify", str(received)]) == 1
    assert (
        "inputs/model.spec.python.py: model.spec.python: is not the file that the run read" in capsys.readouterr().out
    )
    (received / "inputs/model.spec.python.py").unlink()
    assert main(["verify", str(received)]) == 1


def interrupted(mine, tmp_path: Path) -> Path:
    with pytest.raises(KeyboardInterrupt):
        run(load_scenario(mine[0]), out=tmp_path / "run", engine="sequential", listeners=[Ending()])
    user_code._allowed.clear()
    return tmp_path / "run"


@pytest.mark.full
def test_an_interrupted_run_goes_on_with_its_files_and_with_no_others(mine, tmp_path, capsys):
    scenario, whole = mine
    interrupted(mine, tmp_path)
    text = scenario.with_name("net.py").read_text()
    try:
        scenario.with_name("net.py").write_text(text + "raise SystemExit(7)")
        assert main(["simulate", "--resume", str(tmp_path / "run")]) == 2
        assert "add --trust" in capsys.readouterr().err
    finally:
        scenario.with_name("net.py").write_text(text)
    assert main(["simulate", "--resume", str(tmp_path / "run")]) == 0
    for name in ("fedavg/seed-0/rounds.parquet", "fedavg/seed-0/final.safetensors", "summary.json"):
        assert (tmp_path / "run" / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.parametrize(("entry", "message"), [
    ({"python": "mine.py:MINES"}, "no object 'MINES'; did you mean 'MINE'"),
    ({"python": "mine.py:Scaled"}, "expected 'Scaled' to be a Recipe"),
    ({"python": "mine.py"}, r"methods.1.python: expected FILE.py:NAME"),
    ({"python": "other.py:MINE"}, r"methods.1.python"),
    ({"python": "mine.py:MINE", "method": "fedavg"}, "and no key method"),
    ({"python": "mine.py:MINE", "strenght": 2}, r"methods.1.strenght: unknown key; did you mean 'strength'"),
    ({"python": "mine.py:MINE", "strength": 0}, r"methods.1.strength: expected more than 0"),
    ({"python": "mine.py:MINE", "server": "scaffold"}, r"methods.1.server: .*do not read the 'control'"),
])  # fmt: skip
def test_a_mistake_in_an_own_method_is_one_sentence(mine, monkeypatch, entry, message):
    monkeypatch.chdir(mine[0].parent)
    with pytest.raises(UserError, match=message):
        load_scenario(mine[0], {"methods.1": entry})


def test_trust_is_for_run_directories(mine, capsys):
    assert main(["simulate", str(mine[0]), "--trust"]) == 2
    assert "expected it with --resume" in capsys.readouterr().err
