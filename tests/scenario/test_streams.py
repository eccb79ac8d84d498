"""A scenario may come through a pipe of the shell; any other thing that is no plain file is refused at once."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from edgefl.cli.entry import main
from edgefl.scenario.writing import dump_yaml

from ..small_runs import SMALL


def shell(line, tmp_path):
    (tmp_path / "s.yaml").write_text(dump_yaml(SMALL))
    environment = {**os.environ, "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}
    return subprocess.run(
        ["bash", "-c", line], check=False, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    "line",
    ["edgefl scenario validate <(cat s.yaml)", "cat s.yaml | edgefl scenario validate /dev/stdin",
     "edgefl scenario validate /dev/stdin <s.yaml"],
)  # fmt: skip
def test_a_scenario_may_come_through_a_pipe(line, tmp_path):
    done = shell(line, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "valid (small: 8 clients" in done.stdout


@pytest.mark.parametrize("kind", ["named pipe", "device", "folder"])
def test_what_is_no_plain_file_is_refused_at_once(kind, tmp_path, capsys):
    name = tmp_path / "x.yaml"
    if kind == "named pipe":
        os.mkfifo(name)
    elif kind == "device":
        name.symlink_to("/dev/zero")
    else:
        name.mkdir()
    trace = f"{{kind: trace, file: {name}}}"
    for command in (
        ["simulate", str(name)],
        ["scenario", "validate", str(name)],
        ["profile", "validate", str(name)],
        ["profile", "fit", str(name), "-o", str(tmp_path / "new.yaml")],
        ["scenario", "validate", "5g_100clients", "--set", f"fleet.0.profile={name}"],
    ):
        assert main(command) == 2
        assert f"found a {kind}" in capsys.readouterr().err, command
    for field in ("fleet.0.availability", "network.links.5g.down", "network.links.5g.up"):
        change = ["--set", f"{field}={trace}", "--set", "network.links.5g.redraw=null"]
        assert main(["scenario", "validate", "5g_100clients", *change]) == 2
        expected = "expected files of traces" if kind == "folder" and "links" in field else "expected a file "
        assert expected in capsys.readouterr().err
