"""A run directory under way: who works in it, what is finished, and how to go on after an interruption."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from edgefl.durable_file import aside, flush_folder, remove_unfinished, write_durably
from edgefl.errors import UserError
from edgefl.experiment.folder_lock import FolderLock
from edgefl.experiment.inputs import Input, check_inputs, digests
from edgefl.experiment.state import Choices, State, read_state
from edgefl.experiment.summary import is_summary
from edgefl.record import RunPaths, names
from edgefl.scenario import Scenario
from edgefl.version import __version__


class RunDirectory:
    """A run directory that this process alone works in, from its first file to its summary.

    Used as a context manager: it first takes the folder for this process, which makes it where it is missing, and then
    looks what the folder holds. What this process made is removed again where the run does not begin.

    Args:
        path: the directory.
        choices: what the command chose; ``None`` reads them from an interrupted run, or from a finished one in which
            runs ended by a fault: those are tried again.

    Attributes:
        path: the directory.
        paths: its files.
        choices: what the command chose.
        finished: what is known of each finished run, by (label, seed): its entry in the summary, and the (alpha, batch)
            of the step costs that it used.
        inputs: digests of what the runs read, by field of the scenario.
        opened: whether the scenario is written, so that the run can be resumed from now on.

    Raises:
        UserError: when it is entered: another process works there, it holds something already, it cannot be written, or
            there is no interrupted run to resume.
    """

    choices: Choices

    def __init__(self, path: Path, choices: Choices | None) -> None:
        self.path = path
        self.paths = RunPaths(path)
        self.finished: dict[tuple[str, int], dict[str, Any]] = {}
        self.inputs: dict[str, str] = {}
        self.opened = False
        self._asked = choices
        self._state_read: State | None = None
        self._lock: FolderLock | None = None
        self._made = False

    def __enter__(self) -> Self:
        self._look_before_locking()
        try:
            self._lock = FolderLock(self.paths.lock, make=self._asked is not None)
        except BlockingIOError:
            raise UserError("another process is working in this run directory", file=str(self.path)) from None
        except OSError as error:
            raise self._not_writable(error) from None
        try:
            if self._asked is None:
                self._read()
            else:
                check_free(self.path, begun=not self._lock.first)
                self.choices = self._asked
        except BaseException:
            self._lock.release(made=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock is not None:
            self._lock.release(made=not self.opened)

    @property
    def moved(self) -> bool:
        """Whether the folder was moved or removed since it was taken."""
        return self._lock is not None and not self._lock.in_place

    @property
    def new_place(self) -> Path | None:
        """Where a folder that was moved is now, if the system says so."""
        return None if self._lock is None else self._lock.new_place

    def check(self, scenario: Scenario) -> None:
        """Make sure that what was read of an interrupted run belongs to its scenario.

        Raises:
            UserError: it names runs that the scenario does not have.
        """
        if self._state_read is not None:
            self._state_read.check(scenario, self._state_file())

    def open(self, scenario: str) -> None:
        """Write the resolved scenario, unless that was done before.

        Args:
            scenario: the resolved scenario as YAML.

        Raises:
            UserError: the directory cannot be written.
        """
        if self.opened:
            return
        try:
            if not self.paths.state.exists():
                self._check_place()
                self._made = self._asked is not None
                # A summary that is there speaks of runs that are about to be tried again.
                self.paths.summary.unlink(missing_ok=True)
                # The state comes last: where it is, there is a scenario to go on with.
                write_durably(self.paths.scenario, scenario)
                self._write()
            self.opened = True
        except OSError as error:
            self.forget()
            raise self._not_writable(error) from None

    def read_inputs(self, found: Mapping[str, Input]) -> None:
        """Make sure that all runs read the same; to be called before :meth:`open`, and before each run.

        Args:
            found: the inputs as they are now.

        Raises:
            UserError: the run began with other contents.
        """
        check_inputs(self.inputs, found)
        self.inputs |= digests(found)

    def run_finished(self, label: str, seed: int, entry: dict[str, Any], costs: list[tuple[int, int]]) -> None:
        """One run is complete: its tables are written, and its journal and checkpoints are no longer needed."""
        self.finished[label, seed] = {"entry": entry, "costs": costs}
        self._write()
        self._clear(label, seed)

    def _clear(self, label: str, seed: int) -> None:
        self.paths.of(label, seed).clear()

    def forget(self) -> None:
        """Leave no trace of a run whose input turned out to be wrong, unless one of its runs had already ended."""
        if self._made and not self.finished and not self.moved:
            self.paths.remove(self.choices.methods)
            self.opened = False

    def all_finished(self) -> None:
        """The summary is written: there is nothing left to resume."""
        self._check_place()
        for label, seed in self.finished:
            self._clear(label, seed)  # again: a kill may have come between a run's end and this
        sound = {run: known for run, known in self.finished.items() if known["entry"]["stop"]["reason"] != "fault"}
        if len(sound) < len(self.finished):
            write_durably(self.paths.faulted, json.dumps(self._state(sound)))
        else:
            self.paths.faulted.unlink(missing_ok=True)
        remove_unfinished(self.path)
        # The state goes last: where it is gone, so is all that a run needs to be resumed, and a kill leaves no lock
        # behind. A process that comes in between finds all runs finished, and writes the same summary again.
        if self._lock is not None:
            self._lock.remove_file()
        flush_folder(self.path)
        self.paths.state.unlink(missing_ok=True)
        flush_folder(self.path)

    def _write(self) -> None:
        self._check_place()
        write_durably(self.paths.state, json.dumps(self._state(self.finished)))

    def _state(self, finished: Mapping[tuple[str, int], dict[str, Any]]) -> dict[str, Any]:
        return {
            "edgefl": __version__,
            "inputs": self.inputs,
            "choices": self.choices.model_dump(mode="json"),
            "finished": [{"label": label, "seed": seed, **known} for (label, seed), known in finished.items()],
        }

    def _check_place(self) -> None:
        if self.moved:
            raise FileNotFoundError(errno.ENOENT, "the folder was moved or removed", str(self.path))

    def _look_before_locking(self) -> None:
        """Refuse what is plainly no place for a run before anything is written there; it is looked at again later."""
        if self._asked is None:
            self._state_file()
        else:
            look_free(self.path)

    def _state_file(self) -> Path:
        file = next((file for file in (self.paths.state, self.paths.faulted) if file.exists()), None)
        if file is None:
            summary = self.paths.summary
            reason = "the run in it is finished" if is_summary(summary) else "there is no interrupted run in it"
            if summary.exists() and not is_summary(summary):
                reason = "summary.json is damaged, and what is needed to go on was removed when the run had ended"
            raise UserError(f"nothing to resume: {reason}", file=str(self.path))
        return file

    def _read(self) -> None:
        self._state_read = state = read_state(self._state_file())
        self.paths.check_own(state.choices.methods)
        self.choices, self.inputs = state.choices, dict(state.inputs)
        self.opened = self.paths.state.exists()
        self.finished = {(each.label, each.seed): {"entry": each.entry, "costs": each.costs} for each in state.finished}

    def _not_writable(self, error: OSError) -> UserError:
        return UserError(f"the run directory cannot be written: {error.strerror}", file=str(self.path))


def is_interrupted(path: Path) -> bool:
    """Whether a folder holds a run that was begun and not finished."""
    return (path / names.STATE).is_file()


def look_free(path: Path, *, hint: str = "choose another folder") -> None:
    """The same as :func:`check_free`, as far as it can be said without the folder's lock, and nothing is written.

    Raises:
        UserError: no run can begin there.
    """
    if not RunPaths(path).lock.exists():
        check_free(path, hint=hint)


def check_free(path: Path, *, begun: bool = False, hint: str = "choose another folder") -> None:
    """Make sure that a run can begin in a folder: it is not there, or it is empty.

    Args:
        path: the folder.
        begun: it may also hold what a process leaves that was killed before its first run began.
        hint: what to do otherwise.

    Raises:
        UserError: it holds something, or cannot be made. Nothing that is there is ever written over.
    """
    # The nearest thing that is there tells whether the folder can be made.
    present = next((each for each in (path, *path.absolute().parents) if each.exists()), None)
    if present is not None and not present.is_dir():
        raise UserError(f"expected a folder, found the file {present}; {hint}", file=str(path))
    if not path.is_dir():
        return
    try:
        found = set(os.listdir(path))
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}; {hint}", file=str(path)) from None
    left = {names.SCENARIO, *(aside(path / name).name for name in (names.SCENARIO, names.STATE))} if begun else set()
    if found <= {names.LOCK, *left}:
        return
    if names.STATE in found:
        raise UserError(
            f"holds an interrupted run; to continue: edgefl simulate --resume {path}; else {hint}", file=str(path)
        )
    if found & {names.SUMMARY, names.SCENARIO}:
        raise UserError(f"already holds a run; {hint}", file=str(path))
    raise UserError(f"expected a new or an empty folder, found files in it; {hint}", file=str(path))
