"""A disk that fills up while a command writes its file leaves the old file, and nothing else."""

from __future__ import annotations

import errno
import os

import pytest

from edgefl.cli import main
from edgefl.experiment import run
from edgefl.scenario.loading import check

from ..small_runs import SMALL

COMMANDS = {
    "table": ["report", "RUN", "--output", "FILE"],
    "csv": ["report", "RUN", "--format", "csv", "--output", "FILE"],
    "json": ["report", "RUN", "--json", "--output", "FILE"],
    "page": ["report", "RUN", "--html", "FILE"],
    "trace": ["timeline", "RUN", "--method", "fedavg", "--output", "FILE"],
    "chart": ["timeline", "RUN", "--method", "fedavg", "--png", "FILE"],
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    scenario = check({**SMALL, "training": {**SMALL["training"], "rounds": 2}})
    return run(scenario, out=tmp_path_factory.mktemp("full") / "run", train=False)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_leaves_the_old_file(finished, tmp_path, monkeypatch, capsys, command):
    file = tmp_path / "file.png"
    file.write_text("old")
    arguments = [{"RUN": str(finished), "FILE": str(file)}.get(word, word) for word in COMMANDS[command]]

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        assert main(arguments) == 2
    assert f"{file}: cannot be written: No space left on device" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file.png"]
    assert file.read_text() == "old"
    assert main(arguments) == 0
    assert file.read_bytes() != b"old"
