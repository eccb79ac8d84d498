"""Standard streams that are closed, full or of another encoding end a command with one sentence, or do not matter."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from edgefl.experiment import run
from edgefl.scenario.loading import check

from ..small_runs import SMALL

CLOSED = (">&-", "2>&-", "<&- >&- 2>&-", "| true; exit ${PIPESTATUS[0]}")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    scenario = check({**SMALL, "training": {**SMALL["training"], "rounds": 2}})
    return run(scenario, out=tmp_path_factory.mktemp("streams") / "run", train=False)


def done(finished, command, redirections, **environment):
    """The exit code and messages of ``python -m edgefl`` with a shell's redirections."""
    words = " ".join([sys.executable, "-m", "edgefl", *command]).replace("RUN", str(finished))
    found = subprocess.run(
        ["bash", "-c", f"{words} {redirections}"],
        check=False,
        capture_output=True,
        env={**os.environ, **environment},
        timeout=120,
    )
    return found.returncode, found.stderr.decode(), found.stdout


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize("command", [["report", "RUN"], ["verify", "RUN"], ["--help"]], ids=" ".join)
def test_a_full_disk_behind_standard_output_is_one_sentence(finished, command):
    code, said, _ = done(finished, command, "> /dev/full")
    assert (code, said) == (2, "error: standard output cannot be written: No space left on device\n")


@pytest.mark.parametrize(
    ("command", "redirections"), [*((["report", "RUN"], each) for each in CLOSED), (["--help"], CLOSED[-1])]
)
def test_a_closed_stream_does_not_matter(finished, command, redirections):
    assert done(finished, command, redirections)[:2] == (0, "")


@pytest.mark.parametrize("command", [["report", "RUN"], ["models"]], ids=" ".join)
@pytest.mark.parametrize("encoding", [{"PYTHONIOENCODING": "ascii"}, {"PYTHONCOERCECLOCALE": "0"}], ids=str)
def test_characters_that_the_encoding_lacks_are_escaped(finished, command, encoding):
    code, said, printed = done(finished, command, "", LC_ALL="C", PYTHONUTF8="0", **encoding)
    assert (code, said) == (0, "")
    assert printed


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_messages_that_cannot_be_written_do_not_change_the_exit_code(finished):
    assert done(finished, ["nonsense"], "2> /dev/full")[0] == 2


CLOSING = """
import json, sys
from dataclasses import replace
from pathlib import Path

from edgefl.cli import main
from edgefl.methods.objectives.cross_entropy import CrossEntropy
from edgefl.methods.recipe import METHODS
from tests.small_runs import SMALL

class Closing(CrossEntropy):
    def loss(self, *arguments):
        for name in ("stdin", "stdout", "stderr", "__stdout__", "__stderr__"):
            getattr(sys, name).close()
        sys.stdout.buffer.close()
        sys.stderr = open("/dev/null", "w")
        sys.stderr.close()
        return super().loss(*arguments)

METHODS.register("closing")(replace(METHODS["fedavg"], objective=Closing))
scenario = {**SMALL, "methods": ["closing", "fedavg"], "training": {**SMALL["training"], "rounds": 1}}
Path(sys.argv[1], "scenario.yaml").write_text(json.dumps(scenario))
sys.exit(main(["simulate", sys.argv[1] + "/scenario.yaml", "--out", sys.argv[1] + "/run"]))
"""


def test_streams_that_a_part_closes_stay_open_for_the_command(tmp_path):
    found = subprocess.run(
        [sys.executable, "-c", CLOSING, str(tmp_path)], check=False, capture_output=True, text=True, timeout=120
    )
    assert found.returncode == 0, found.stderr
    assert "fedavg" in found.stdout
    assert "fault" not in found.stdout + found.stderr
