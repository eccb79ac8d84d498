"""A reader's session: one folder in which the commands of a page are run in order, in a shell that is not set up."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import edgefl.training.engines.parallel  # noqa: F401  (tests/conftest.py keeps it from starting worker processes)
from edgefl.cli import main

from .pages import PROGRAMS, ROOT, Command
from .stand_in import shortened

LIMIT_SECONDS = 240.0
"""No short command takes more than some ten seconds on two quiet cores; what takes this long hangs."""


@dataclass(frozen=True)
class Done:
    """What became of a command; its code is ``None`` where it was stopped at the limit."""

    command: str
    code: int | None
    output: str
    seconds: float

    @property
    def failure(self) -> str | None:
        """What is wrong, for a person to read."""
        if self.code == 0:
            return None
        what = f"was still running after {self.seconds:.0f} s" if self.code is None else f"ended with {self.code}"
        return f"$ {self.command}\n{what}:\n{self.output[-3000:]}"


class Session:
    """A folder, and the shell in it.

    Args:
        folder: an empty folder.
        full: commands run at their full size.
    """

    def __init__(self, folder: Path, *, full: bool = False) -> None:
        self.folder, self.full = folder / "session", full
        programs = folder / "programs"
        home = folder / "home"
        for each in (self.folder, programs, home):
            each.mkdir()
        for name in PROGRAMS:
            file = programs / name
            words = [sys.executable, str(Path(__file__).with_name("stand_in.py")), "full" if full else "short", name]
            file.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            file.chmod(0o755)
        for name in ("scenarios", "docs"):
            (self.folder / name).symlink_to(ROOT / name)
        self.environment = {"PATH": os.pathsep.join([str(programs), os.defpath]), "HOME": str(home)}
        # Where edgefl is not installed, its checkout alone.
        if "PYTHONPATH" in os.environ:
            self.environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
        self.data = os.environ.get("EDGEFL_DATA")
        if self.data:  # where the README has it, and in the user's cache directory
            (home / ".cache" / "edgefl").mkdir(parents=True)
            for link in (home / "data", home / ".cache" / "edgefl" / "data"):
                link.symlink_to(Path(self.data).absolute())

    def run(self, command: str, limit: float = LIMIT_SECONDS) -> Done:
        """Give a command to the shell; with all of its processes it ends at the limit."""
        with (self.folder.parent / "output").open("w+b") as output:
            began = time.monotonic()
            process = self._start(command, output)
            try:
                code: int | None = process.wait(limit)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end(process)
            seconds = time.monotonic() - began
            output.seek(0)
            return Done(command, code, output.read().decode("utf-8", errors="replace"), seconds)

    def call(self, command: Command) -> Done:
        """Run a command in this process where it only calls ``edgefl``, which saves the import of PyTorch."""
        words = command.own_call
        if words is None:
            return self.run(command.text)
        output, began = io.StringIO(), time.monotonic()
        before = os.getcwd()
        os.chdir(self.folder)
        try:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                code = main((words if self.full else shortened(words))[1:])
        finally:
            os.chdir(before)
        return Done(command.text, code, output.getvalue(), time.monotonic() - began)

    def _start(self, command: str, output: object) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["/bin/sh", "-c", command], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
            stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip


def _end(process: subprocess.Popen[bytes]) -> None:
    """End all processes of a command, also those that its own end left behind."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
