"""README's two commands on a machine where nothing is installed: a copy of the checkout, a new virtual environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .pages import ROOT, commands

LIMIT_SECONDS = 3600.0
NOT_OF_A_CHECKOUT = (".git", "*cache*", "build", "runs", "sweeps", "venv", ".venv", "*.egg-info")


def interpreter(version: str) -> str | None:
    """A Python of this version: one on the path, or an installation beside the one that runs the tests."""
    beside = sorted(Path(sys.base_prefix).parent.glob(f"*{version}*/bin/python{version}"))
    for found in (shutil.which(f"python{version}"), *map(str, beside)):
        # A shim of a version manager may be there and lead nowhere.
        if found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
            return found
    return None


def installs(done: subprocess.CompletedProcess[str]) -> None:
    if "No matching distribution" in done.stderr or "Failed to establish a new connection" in done.stderr:
        pytest.skip("packages cannot be installed here")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.release
@pytest.mark.parametrize("version", ["3.11", "3.12"])
def test_the_readmes_two_commands_work_in_a_new_environment(tmp_path, version):
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version}")
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT, checkout, ignore=shutil.ignore_patterns(*NOT_OF_A_CHECKOUT))
    subprocess.run([python, "-m", "venv", str(tmp_path / "venv")], check=True)
    (tmp_path / "home").mkdir()
    bare = {"PATH": os.pathsep.join([str(tmp_path / "venv" / "bin"), os.defpath]), "HOME": str(tmp_path / "home")}
    # How this machine reaches a package index is its own affair.
    installing = bare | {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}

    def run(command: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", "-c", command], cwd=checkout, env=environment, capture_output=True, text=True,
            timeout=LIMIT_SECONDS, check=False,
        )  # fmt: skip

    first, second = [command.text.split(" && ") for command in commands(ROOT / "README.md")[:2]]
    installs(run(first[0], installing))
    done = run(first[1], bare)
    assert done.returncode == 0, done.stderr
    assert "Mean ± half width" in done.stdout
    installs(run(second[0], installing))
    assert second[1] == "pytest"
    assert run("pytest --collect-only -q", bare).returncode == 0
    done = run("pytest -q tests/test_units.py tests/cli/test_entry.py tests/user_shell/test_pages.py", bare)
    assert done.returncode == 0, done.stdout
