"""A run directory in progress: its lock, its finished runs, and its resumption after an interruption."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from edgefl.errors import UserError
from edgefl.experiment.extension import Extension, check_finished, extended_state
from edgefl.experiment.folder_lock import FolderLock
from edgefl.experiment.inputs import Input, check_inputs, digests, keep_code
from edgefl.experiment.software import in_words
from edgefl.experiment.state import Choices, Finished, State, damaged, read_state
from edgefl.files import aside, write_file
from edgefl.options import Options
from edgefl.record import RunPaths, names
from edgefl.record.metric import Metric
from edgefl.record.paths import how_to_continue, is_interrupted
from edgefl.record.summary import SCHEMA, SeedResult, Summary, is_summary, read_summary
from edgefl.scenario import dump_yaml, resolve
from edgefl.version import __version__


class RunDirectory:
    """A run directory that only this process uses, from its first file to its summary.

    Use it as a context manager: it first locks the folder, creating it if it is missing, and then checks its contents.
    If the run does not begin, everything that this process created is removed again.

    Args:
        path: the directory.
        choices: the command's choices; ``None`` reads them from an interrupted run, or from a finished one in which
            runs ended by a fault: these runs are tried again.
        extension: seeds to add to a finished run, in place of ``choices``. Until all of them are done, the scenario and
            the summary stay those of the finished run.

    Attributes:
        path: the directory.
        paths: its files.
        choices: the command's choices.
        finished: the finished runs, by (label, seed).
        inputs: digests of what the runs read, by field of the scenario.
        software: versions of the packages on which results depend, by name.
        seeds: all seeds, while seeds are added to a finished run; else ``None``.
        opened: whether the scenario is written, so that the run can be resumed.

    Raises:
        UserError: on entry: another process uses the directory, it is not empty, it cannot be written, or there is no
            interrupted run to resume.
    """

    choices: Choices

    def __init__(self, path: Path, choices: Choices | None, *, extension: Extension | None = None) -> None:
        self.path = path
        self.paths = RunPaths(path)
        self.finished: dict[tuple[str, int], Finished] = {}
        self.inputs: dict[str, str] = {}
        self.software: dict[str, str] = {}
        self.seeds: tuple[int, ...] | None = None
        self.opened = False
        self._asked = choices
        self._extension = extension
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
        """Whether the folder was moved or removed since it was locked."""
        return self._lock is not None and not self._lock.in_place

    @property
    def new_place(self) -> Path | None:
        """The new path of a folder that was moved, if the system reports it."""
        return None if self._lock is None else self._lock.new_place

    def check(self, labels: Sequence[str], seeds: Sequence[int], metric: Metric) -> None:
        """Check that the state of an interrupted run belongs to its scenario.

        Args:
            labels: the scenario's methods.
            seeds: its seeds.
            metric: what its runs measure.

        Raises:
            UserError: it contains runs that the scenario does not have.
        """
        if self._state_read is None:
            return
        self._state_read.check(labels, seeds, metric, self._state_file())

    def damaged(self, reason: str) -> UserError:
        """The error for a state that does not fit its scenario."""
        return damaged(self._state_file(), "", reason)

    def open(self, scenario: Options) -> None:
        """Write the resolved scenario and copies of its Python files, unless they were written before.

        Args:
            scenario: the scenario.

        Raises:
            UserError: the directory cannot be written.
        """
        if self.opened:
            return
        try:
            if not self.paths.state.exists():
                self._check_place()
                self._made = self._asked is not None
                if self.seeds is None:
                    self._begin(scenario)
                self._write()
            self.opened = True
        except OSError as error:
            self.forget()
            raise self._not_writable(error) from None

    def _begin(self, scenario: Options) -> None:
        """Write what a run reads; the state is written last: if it exists, the scenario exists too."""
        text = dump_yaml(resolve(scenario))
        # An existing summary describes runs that are about to be tried again.
        self.paths.summary.unlink(missing_ok=True)
        keep_code(scenario, self.inputs, self.path)
        write_file(self.paths.scenario, text)

    def extended(self, scenario: Options) -> None:
        """Write the scenario of a run to which seeds were added, before its summary."""
        if self.seeds is not None:
            self._check_place()
            self.paths.sensitivity.unlink(missing_ok=True)  # it has the former seeds only
            write_file(self.paths.scenario, dump_yaml(resolve(scenario)))

    def read_inputs(self, found: Mapping[str, Input]) -> None:
        """Check that all runs read the same inputs; call it before :meth:`open`, and before each run.

        Args:
            found: the present inputs.

        Raises:
            UserError: the run began with different contents, or with other inputs.
        """
        if self._asked is None or self.inputs:
            check_inputs(self.inputs, found)
            if unknown := self.inputs.keys() - found.keys():
                raise self.damaged(f"inputs: expected {', '.join(sorted(found))}, found also {min(unknown)}")
        self.inputs |= digests(found)

    def use_software(self, found: Mapping[str, str]) -> None:
        """Record the packages of a new run; check that a resumed run has those with which it began.

        Args:
            found: versions of the installed packages on which results depend, by name.

        Raises:
            UserError: the run began with others.
        """
        if self._asked is None and self.software != found:
            raise UserError(
                f"the run began with {in_words(self.software)}, found {in_words(found)}; results may differ, so "
                f"continue it with {in_words(self.software)}",
                file=str(self.path),
            )
        self.software = dict(found)

    def run_finished(
        self, label: str, seed: int, entry: SeedResult, costs: Sequence[tuple[int, int] | tuple[int, int, int]]
    ) -> None:
        """Record that a run is complete: its tables are written, its journal and checkpoints no longer needed."""
        self.finished[label, seed] = Finished(label=label, seed=seed, entry=entry, costs=list(costs))
        self._write()
        self._clear(label, seed)

    def _clear(self, label: str, seed: int) -> None:
        self.paths.of(label, seed).clear()

    def forget(self) -> None:
        """Remove everything after an error in the input, unless one of the runs has already ended."""
        if self._made and not self.finished and not self.moved:
            self.paths.remove(self.choices.methods)
            self.opened = False

    def all_finished(self) -> None:
        """Remove the state after the summary is written: there is nothing to resume."""
        self._check_place()
        self.seeds = None
        for label, seed in self.finished:
            self._clear(label, seed)  # again, in case of a kill between the run's end and this line
        sound = [known for known in self.finished.values() if not known.entry.faulted]
        if len(sound) < len(self.finished):
            write_file(self.paths.faulted, self._state(sound))
        else:
            self.paths.faulted.unlink(missing_ok=True)
        self.paths.clear()
        # The state is removed last: without it, all files that a resumption needs are gone, and a kill leaves no lock.
        # A process that starts in between finds all runs finished, and writes the same summary again.
        if self._lock is not None:
            self._lock.remove_file()
        self.paths.state.unlink(missing_ok=True)

    def _write(self) -> None:
        self._check_place()
        write_file(self.paths.state, self._state(self.finished.values()))

    def _state(self, finished: Iterable[Finished]) -> str:
        state = State(
            edgefl=__version__,
            schema_version=SCHEMA,
            inputs=self.inputs,
            software=self.software,
            choices=self.choices,
            finished=tuple(finished),
            **({} if self.seeds is None else {"seeds": self.seeds}),
        )
        return json.dumps(state.model_dump(mode="json", exclude_unset=True), allow_nan=False)

    def _check_place(self) -> None:
        if self.moved:
            raise FileNotFoundError(errno.ENOENT, "the folder was moved or removed", str(self.path))

    def _look_before_locking(self) -> None:
        """Refuse an unusable folder before anything is written there; it is checked again later."""
        if self._extension is not None:
            check_finished(self.path)
        elif self._asked is None:
            self._state_file()
        else:
            look_free(self.path)

    def _state_file(self) -> Path:
        """The file that says what is left to do; of a run that is being extended, the summary until there is one."""
        file = next((file for file in (self.paths.state, self.paths.faulted) if file.exists()), None)
        if file is None and self._extension is not None:
            return self.paths.summary
        if file is None:
            summary = self.paths.summary
            reason = "its run is finished" if is_summary(summary) else "it contains no interrupted run"
            if summary.exists() and not is_summary(summary):
                reason = "summary.json is damaged, and the files needed to continue were removed when the run ended"
            raise UserError(f"nothing to resume: {reason}", file=str(self.path))
        return file

    def _read(self) -> None:
        extension = self._extension
        state = read_state(self._state_file()) if extension is None else extended_state(self.path, extension)
        self._state_read = state
        self.choices, self.inputs, self.software = state.choices, dict(state.inputs), dict(state.software)
        self.seeds = state.seeds
        self.opened = self.paths.state.exists()
        self.finished = {(each.label, each.seed): each for each in state.finished}

    def _not_writable(self, error: OSError) -> UserError:
        return UserError(f"the run directory cannot be written: {error.strerror}", file=str(self.path))


def look_free(path: Path, *, hint: str = "choose another folder") -> None:
    """The part of :func:`check_free` that needs no lock; it writes nothing.

    Raises:
        UserError: no run can begin there.
    """
    if not RunPaths(path).lock.exists():
        check_free(path, hint=hint)


def check_free(path: Path, *, begun: bool = False, hint: str = "choose another folder") -> None:
    """Check that a run can begin in a folder: it does not exist, or it is empty.

    Args:
        path: the folder.
        begun: it may also contain files of a process that was killed before its first run began.
        hint: what to do otherwise.

    Raises:
        UserError: it is not empty, or cannot be created. Existing files are never overwritten.
    """
    # The nearest existing parent shows whether the folder can be created.
    present = next((each for each in (path, *path.absolute().parents) if each.exists()), None)
    if present is not None and not present.is_dir():
        raise UserError(f"expected a folder, found the file {present}; {hint}", file=str(path))
    if not path.is_dir():
        return
    try:
        found = set(os.listdir(path))
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}; {hint}", file=str(path)) from None
    unfinished = (aside(path / name).name for name in (names.SCENARIO, names.STATE))
    left = {names.SCENARIO, names.INPUTS, *unfinished} if begun else set()
    if found <= {names.LOCK, *left}:
        return
    if names.STATE in found:
        raise UserError(
            f"contains an interrupted run; to continue: {how_to_continue(path)}; else {hint}", file=str(path)
        )
    if found & {names.SUMMARY, names.SCENARIO}:
        raise UserError(f"already contains a run; {hint}", file=str(path))
    raise UserError(f"expected a new or an empty folder, found files in it; {hint}", file=str(path))


def read_run_summary(run: Path) -> Summary:
    """The summary of a finished run.

    Raises:
        UserError: the folder has none, or it is damaged or of another schema.
    """
    path = RunPaths(run).summary
    if not path.is_file():
        hint = f"; it is unfinished: {how_to_continue(run)}" if is_interrupted(run) else ""
        raise UserError(f"expected the folder of a finished run, found no summary.json{hint}", file=str(run))
    _, summary = read_summary(path)
    for label in summary.methods:
        if fault := names.label_fault(label):
            raise UserError(fault, file=str(path), field=f"methods.{label}")
    return summary
