"""Every JSON file that a command reads may hold anything: the command refuses it in one sentence with its name."""

from __future__ import annotations

import os
import re
import shutil

import pytest

from edgefl.cli.entry import main
from edgefl.experiment import run
from edgefl.scenario.loading import check

from ..small_runs import SMALL
from ..test_json_file import HOSTILE

COMMANDS = {
    "summary.json": [["report", "RUN"], ["verify", "RUN"], ["replay", "RUN"], ["diagnose", "RUN"]],
    "costs.json": [["verify", "RUN"], ["replay", "RUN"]],
    "unfinished.json": [["simulate", "--resume", "RUN"]],
    "faulted.json": [["simulate", "--resume", "RUN"]],
    "measured.json": [["profile", "fit", "RUN/measured.json", "-o", "RUN/new.yaml"]],
    "graph.json": [
        ["scenario", "validate", "5g_100clients", "--set", "network.topology={kind: file, file: RUN/graph.json}"]
    ],
    "trace.json": [
        ["scenario", "validate", "5g_100clients", "--set", "fleet.0.availability={kind: trace, file: RUN/trace.json}"]
    ],
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run(check(SMALL), out=tmp_path_factory.mktemp("json") / "run", train=False)


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_hostile_file_is_refused_by_every_command_that_reads_it(finished, tmp_path, capsys, name, content):
    folder = shutil.copytree(finished, tmp_path / "run")
    (folder / name).write_bytes(content)
    for command in COMMANDS[name]:
        code = main([part.replace("RUN", str(folder)) for part in command])
        printed = capsys.readouterr()
        # A figure of a summary that is not finite is shown as missing; here all others are missing, too.
        assert code == 2 or (code == 1 and command[0] == "verify"), (command, printed.err)
        assert name in printed.err + printed.out
        assert not re.search(r"^fault: |Errno|Traceback|RecursionError", printed.err + printed.out)


@pytest.mark.parametrize("name", ["measured.json"])
def test_a_pipe_in_place_of_a_file_blocks_no_command(finished, tmp_path, capsys, name):
    folder = shutil.copytree(finished, tmp_path / "run")
    os.mkfifo(folder / name)
    for command in COMMANDS[name]:
        assert main([part.replace("RUN", str(folder)) for part in command]) == 2
        assert "found a named pipe" in capsys.readouterr().err
