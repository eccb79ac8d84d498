"""A disk that fills up while a command writes its file leaves the old file, and nothing else."""

from __future__ import annotations

import errno
import os
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command
from typer.models import OptionInfo

from edgefl.cli import main
from edgefl.cli.app import app
from edgefl.experiment import run
from edgefl.profiling import held_out
from edgefl.profiling.measure_device import main as device
from edgefl.scenario.loading import check
from edgefl.scenario.writing import dump_yaml

from ..small_runs import SMALL

TIMES = "model,method,batch,milliseconds\ncnn,fedavg,32,40\n"
COMMANDS = {
    "table": ["report", "RUN", "--output", "FILE"],
    "csv": ["report", "RUN", "--format", "csv", "--output", "FILE"],
    "json": ["report", "RUN", "--json", "--output", "FILE"],
    "page": ["report", "RUN", "--html", "FILE"],
    "trace": ["timeline", "RUN", "--method", "fedavg", "--output", "FILE"],
    "chart": ["timeline", "RUN", "--method", "fedavg", "--png", "FILE"],
    "holdings": ["data", "show", "SCENARIO", "--output", "FILE"],
    "check": ["profile", "check", "raspberry-pi-4", "TIMES", "--output", "FILE"],
    "schedulers": ["schedule", "SCENARIO", "--rounds", "2", "--selection", "uniform", "--output", "FILE"],
    "landscape": ["diagnose", "RUN", "--batches", "1", "--landscape", "FILE"],
}
"""Outputs that may replace a file."""
NEW = {
    "measured profile": ["profile", "measure", "--threads", "1", "--seconds", "0.05", "--output", "FILE"],
    "script": ["profile", "script", "--output", "FILE"],
    "derived profile": [
        *("profile", "derive", "raspberry-pi-4", "raspberry-pi-5", "--products", "2", "--memory", "2", "--scalar", "2"),
        *("--output", "FILE"),
    ],
    "fitted profile": ["profile", "fit", "TIMES", "--steps", "--like", "raspberry-pi-5", "--output", "FILE"],
}
"""Outputs that must be new."""
FOLDERS = {
    "run": ["simulate", "SCENARIO", "--no-train", "--out", "FILE"],
    "replay": ["replay", "RUN", "--out", "FILE"],
    "calibration": [
        *("profile", "calibrate", "LOG", "--scenario", "SCENARIO", "--like", "raspberry-pi-4", "--output", "FILE"),
    ],
    "sweep": ["sweep", "SCENARIO", "--no-train", "--random", "1", "--out", "FILE"],
}
"""Outputs that are new folders."""
LEFT_OUT = {
    "emulate --out": "is a run directory, and so is its prediction beside it, which is written first",
    "emulate --resume": "is read",
    "report --against": "is read, and its picture is one of several",
    "simulate --resume": "is read; tests/experiment/test_faults.py tries a disk that fills up later",
    "report --tensorboard": "is written by TensorBoard, which appends",
}
"""Other options whose value is a path."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    scenario = check({**SMALL, "training": {**SMALL["training"], "rounds": 2}})
    return run(scenario, out=tmp_path_factory.mktemp("full") / "run")


def path_options(command=None, words: tuple[str, ...] = ()) -> Iterator[str]:
    """Every option of every command whose value is a path: the command's words, and the option's first name."""
    command = command or get_command(app)
    for name, each in getattr(command, "commands", {}).items():
        yield from path_options(each, (*words, name))
    if not hasattr(command, "commands"):
        names = {each.name: each.opts[0] for each in command.params}
        for name, kind in typing.get_type_hints(command.callback, include_extras=True).items():
            parts = [
                *typing.get_args(kind),
                *(each for part in typing.get_args(kind) for each in typing.get_args(part)),
            ]
            if Path in parts and any(isinstance(each, OptionInfo) for each in parts):
                yield " ".join([*words, names[name]])


def test_every_output_of_every_command_is_tried():
    tried = set()
    for words in [*COMMANDS.values(), *NEW.values(), *FOLDERS.values()]:
        tried.add(" ".join([*words[: 2 if words[0] in {"profile", "data"} else 1], words[words.index("FILE") - 1]]))
    assert set(path_options()) == tried | LEFT_OUT.keys()


def full(descriptor):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_leaves_the_old_file(finished, tmp_path, tmp_path_factory, monkeypatch, capsys, command):
    file = tmp_path / "file.png"
    file.write_text("old")
    times = tmp_path_factory.mktemp("times") / "times.csv"
    times.write_text(TIMES)
    scenario = finished / "scenario.yaml"
    paths = {"RUN": str(finished), "SCENARIO": str(scenario), "TIMES": str(times), "FILE": str(file)}
    arguments = [paths.get(word, word) for word in COMMANDS[command]]
    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        assert main(arguments) == 2
    assert f"{file}: cannot be written: No space left on device" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file.png"]
    assert file.read_text() == "old"
    assert main(arguments) == 0
    assert file.read_bytes() != b"old"


@pytest.fixture
def _measures_little(monkeypatch):
    quick = ("plain", "linear", "1000 numbers", "50000 numbers", "step of fire, batch 4")
    cases = {name: case for name, case in device.cases().items() if any(part in name for part in quick)}
    monkeypatch.setattr(device, "cases", lambda: cases)
    monkeypatch.setattr(held_out, "HELD_OUT", ())


@pytest.mark.usefixtures("_measures_little")
@pytest.mark.parametrize("command", [*NEW, *FOLDERS])
def test_a_full_disk_leaves_nothing_of_what_is_new(finished, tmp_path, monkeypatch, capsys, command):
    inputs, file = tmp_path / "inputs", tmp_path / "new" / "file.yaml"
    for folder in (inputs, file.parent):
        folder.mkdir()
    (inputs / "times.csv").write_text(TIMES)
    rounds = "".join(f"{round},0.2,0.4,0.4,400000,400000\n" for round in range(5))
    (inputs / "log.csv").write_text(
        "round,download_seconds,compute_seconds,upload_seconds,bytes_down,bytes_up\n" + rounds
    )
    (inputs / "small.yaml").write_text(dump_yaml({**SMALL, "sweep": {"grid": {"training.local.batch": [8, 16]}}}))
    named = {"TIMES": inputs / "times.csv", "LOG": inputs / "log.csv", "SCENARIO": inputs / "small.yaml"}
    paths = {**named, "RUN": finished, "FILE": file}
    arguments = [str(paths.get(word, word)) for word in (NEW | FOLDERS)[command]]
    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        assert main(arguments) == 2
    message = capsys.readouterr().err
    assert f"{file}: " in message.splitlines()[-1]
    assert message.endswith(": No space left on device\n")
    assert list(file.parent.iterdir()) == []
    assert main(arguments) == 0
    assert file.exists()
