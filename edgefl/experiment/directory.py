"""A run directory in progress: its lock, its finished runs, and its continuation after an interruption."""

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal, Self

from filelock import FileLock, Timeout
from pydantic import Field

from edgefl.errors import UserError
from edgefl.experiment.inputs import (
    SCENARIO,
    Input,
    check_inputs,
    digest_of_scenario,
    digests,
    in_words,
    keep_code,
    scenario_as_written,
)
from edgefl.experiment.recording import read_recording
from edgefl.files import aside, read_json, write_file
from edgefl.hardware import DeviceName
from edgefl.options import Options
from edgefl.record import RunPaths, names
from edgefl.record.costs import StepKey
from edgefl.record.paths import how_to_continue, is_interrupted
from edgefl.record.summary import SCHEMA, SeedResult, Summary, is_summary, read_run
from edgefl.scenario import Scenario, resolve
from edgefl.validation import validated
from edgefl.version import __version__
from edgefl.yaml_file import dump_yaml, read_yaml


class Choices(Options):
    """The options of a command in addition to the scenario, as of :func:`edgefl.experiment.run`; kept on resumption."""

    methods: Annotated[tuple[str, ...], Field(min_length=1)]
    device: Literal["auto", "cpu", "cuda"]
    train: bool
    emulated: bool = False


class Finished(Options):
    """A finished run: its entry in the summary, and the keys of the step costs that it used."""

    label: str
    seed: int
    entry: SeedResult
    costs: tuple[StepKey, ...]


class State(Options):
    """The content of ``unfinished.json``, or of ``faulted.json`` in a finished directory with failed runs."""

    edgefl: str
    schema_version: int
    inputs: dict[str, str]
    software: dict[str, str]
    choices: Choices
    finished: tuple[Finished, ...]

    def write(self, path: Path) -> None:
        write_file(path, json.dumps(self.model_dump(mode="json", exclude_unset=True), allow_nan=False))


class RunDirectory:
    """A run directory that only this process uses, from its first file to its summary.

    Use it as a context manager: it first locks the folder, creating it if it is missing, and then checks its contents.
    If the run does not begin, everything that this process created is removed again.

    Without ``choices`` they are read from an interrupted run, or from a finished one in which runs ended by a fault:
    these runs are tried again. ``inputs`` are digests of what the runs read, by field of the scenario; ``opened``: the
    scenario is written, so that the run can be resumed.
    """

    choices: Choices

    def __init__(self, path: Path, choices: Choices | None) -> None:
        self.path = path
        self.paths = RunPaths(path)
        self.finished: dict[tuple[str, int], Finished] = {}
        self.inputs: dict[str, str] = {}
        self.software: dict[str, str] = {}
        self.opened = False
        self._asked = choices
        self._made: list[Path] = []
        self._begun_here = False

    def __enter__(self) -> Self:
        begun = self.paths.lock.exists()  # a process works here, or was killed
        if self._asked is None:
            self._state_file()
        else:
            look_free(self.path)
        try:
            self._made = [each for each in (self.path, *self.path.parents) if not each.exists()]
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = lock(self.path)
        except OSError as error:
            self._remove_made()
            raise self._not_writable(error) from None
        try:
            if self._asked is None:
                self._read()
            else:
                check_free(self.path, begun=begun)
                self.choices = self._asked
        except BaseException:
            self._release(made=not begun)
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # The file of an interrupted run's lock stays: two processes that resume it must lock the same file.
        self._release(made=not self.opened)

    def _release(self, *, made: bool) -> None:
        if made:
            self.paths.lock.unlink(missing_ok=True)
            self._remove_made()
        self._lock.release()

    def _remove_made(self) -> None:
        for folder in self._made:
            with suppress(OSError):
                folder.rmdir()

    def open(self, scenario: Options) -> None:
        """Write the resolved scenario and copies of its Python files, unless they were written before."""
        if self.opened:
            return
        try:
            if not self.paths.state.exists():
                self._begun_here = self._asked is not None
                # An existing summary describes runs that are about to be tried again.
                self.paths.summary.unlink(missing_ok=True)
                if self._begun_here:
                    keep_code(scenario, self.inputs, self.path)
                    write_file(self.paths.scenario, dump_yaml(resolve(scenario)))
                self._write()  # last: if the state exists, the scenario exists too
            self.opened = True
        except OSError as error:
            self.forget()
            raise self._not_writable(error) from None

    def read_inputs(self, found: Mapping[str, Input]) -> None:
        """Record the inputs of a new run; later, before each run, check that they are still the same."""
        if self._asked is None:
            # The file was compared as it was written: an earlier build had other defaults.
            found = {field: each for field, each in found.items() if field != SCENARIO}
        if self._asked is None or self.inputs:
            check_inputs(self.inputs, found)
        self.inputs |= digests(found)

    def use_software(self, found: Mapping[str, str]) -> None:
        """Record the packages of a new run; check that a resumed run has those with which it began."""
        if self._asked is None and self.software != found:
            began, differ = in_words(self.software), "results may differ, so continue it with"
            message = f"the run began with {began}, found {in_words(found)}; {differ} {began}"
            raise UserError(message, file=str(self.path))
        self.software = dict(found)

    def run_finished(self, label: str, seed: int, entry: SeedResult, costs: Iterable[StepKey]) -> None:
        """Record that a run is complete: its tables are written, its journal and checkpoints no longer needed."""
        self.finished[label, seed] = Finished(label=label, seed=seed, entry=entry, costs=tuple(costs))
        self._write()
        self.paths.of(label, seed).clear()

    def forget(self) -> None:
        """Remove everything after an error in the input, unless one of the runs has already ended."""
        if self._begun_here and not self.finished:
            self.paths.remove(self.choices.methods)
            self.opened = False

    def all_finished(self) -> None:
        """Remove the state after the summary is written: there is nothing to resume."""
        for label, seed in self.finished:
            self.paths.of(label, seed).clear()  # again, in case of a kill between the run's end and this line
        sound = [known for known in self.finished.values() if not known.entry.faulted]
        if len(sound) < len(self.finished):
            _state(self.inputs, self.software, self.choices, sound).write(self.paths.faulted)
        else:
            self.paths.faulted.unlink(missing_ok=True)
        self.paths.clear()
        # The state is removed last: without it, all files that a resumption needs are gone, and a kill leaves no lock.
        # A process that starts in between finds all runs finished, and writes the same summary again.
        self.paths.lock.unlink(missing_ok=True)
        self.paths.state.unlink(missing_ok=True)

    def _write(self) -> None:
        _state(self.inputs, self.software, self.choices, self.finished.values()).write(self.paths.state)

    def _state_file(self) -> Path:
        for file in (self.paths.state, self.paths.faulted):
            if file.exists():
                return file
        reason = "it contains no interrupted run"
        if is_summary(self.paths.summary):
            reason = "its run is finished; to go on: --rounds N, --set budgets.seconds=… or --set stop=rounds"
        raise UserError(f"nothing to resume: {reason}", file=str(self.path))

    def _read(self) -> None:
        file = self._state_file()
        data = read_json(file)
        version = data.get("edgefl") if isinstance(data, dict) else None
        if isinstance(version, str) and (version, data.get("schema_version")) != (__version__, SCHEMA):
            found = f"was created by edgefl {version}, this is {__version__} (schema {SCHEMA} of the files)"
            raise UserError(f"{found}; only the same version can resume it", file=str(file.parent))
        state = validated(State, data, file=str(file))
        self.choices, self.inputs, self.software = state.choices, dict(state.inputs), dict(state.software)
        check_inputs(self.inputs, scenario_as_written(self.path))
        self.opened = self.paths.state.exists()
        self.finished = {(each.label, each.seed): each for each in state.finished}

    def _not_writable(self, error: OSError) -> UserError:
        return UserError(f"the run directory cannot be written: {error.strerror}", file=str(self.path))


def check_finished(path: Path) -> Summary:
    """The summary of a run that can have more seeds or rounds."""
    summary, paths = read_run(path)[1], RunPaths(path)
    reason = None
    if is_interrupted(path):
        reason = f"contains an interrupted run; to continue: {how_to_continue(path)}"
    elif "flower" in read_yaml(paths.scenario):
        reason = "is a run of a Flower app, which cannot be extended: simulate it again"
    elif paths.faulted.exists():
        reason = f"has runs that ended by a fault; complete them before you extend it: {how_to_continue(path)}"
    elif not summary.of_this_version:
        reason = f"was created by edgefl {summary.edgefl}, this is {__version__}; only the same version can extend it"
    elif any(paths.of(label, each.seed).emulation.exists() for label, each in runs_of(summary)):
        reason = "is an emulation, which cannot be extended: emulate again"
    if reason is not None:
        raise UserError(reason, file=str(path))
    return summary


def state_of(
    extended: Scenario, summary: Summary, paths: RunPaths, device: DeviceName, finished: tuple[Finished, ...]
) -> State:
    """The state of an extended run; ``summary`` and ``paths`` are of the finished one."""
    check_inputs(summary.inputs, scenario_as_written(paths.root))
    label, first = runs_of(summary)[0]
    recording = read_recording(paths.of(label, first.seed).events)  # only the log shows whether models were trained
    trained = bool(recording.digests or recording.evaluations)
    inputs = {**summary.inputs, SCENARIO: digest_of_scenario(resolve(extended))}
    choices = Choices(methods=tuple(summary.methods), device=device, train=trained)
    return _state(inputs, summary.software, choices, finished)


def _state(inputs: dict[str, str], software: dict[str, str], choices: Choices, finished: Iterable[Finished]) -> State:
    version = {"edgefl": __version__, "schema_version": SCHEMA}
    return State(**version, inputs=inputs, software=software, choices=choices, finished=tuple(finished))


def runs_of(summary: Summary) -> list[tuple[str, SeedResult]]:
    """Each run's label and entry."""
    return [(label, each) for label, entries in summary.methods.items() for each in entries]


def lock(run: Path) -> FileLock:
    """The lock of a run directory, which this process now has; refused if another one has it."""
    found = FileLock(RunPaths(run).lock)
    try:
        found.acquire(timeout=0)
    except Timeout:
        raise UserError("another process is working in this run directory", file=str(run)) from None
    return found


def same_run(path: Path, scenario: Options, choices: Choices) -> bool:
    """True if a folder contains the run of this scenario with these choices, finished or interrupted."""
    paths, digest = RunPaths(path), digest_of_scenario(resolve(scenario))
    for file in (paths.state, paths.faulted):
        if file.exists():
            state = validated(State, read_json(file), file=str(file))
            return state.choices == choices and state.inputs.get(SCENARIO) == digest
    if not is_summary(paths.summary):
        return False
    _, summary = read_run(path)
    same = summary.inputs.get(SCENARIO) == digest and tuple(summary.methods) == choices.methods
    return same and summary.has_trained == choices.train


def look_free(path: Path, *, hint: str = "choose another folder") -> None:
    """:func:`check_free` before the folder is locked, so that nothing is computed in vain; it writes nothing."""
    if begun := RunPaths(path).lock.exists():
        try:
            lock(path).release()
        except OSError:
            return  # the run says so
    check_free(path, begun=begun, hint=hint)


def check_free(path: Path, *, begun: bool = False, hint: str = "choose another folder") -> None:
    """Check that a folder is new or empty, but for files of a process that was killed (``begun``)."""
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
    reason = f"expected a new or an empty folder, found files in it; {hint}"
    if names.STATE in found:
        reason = f"contains an interrupted run; to continue: {how_to_continue(path)}; else {hint}"
    elif found & {names.SUMMARY, names.SCENARIO}:
        reason = f"already contains a run; {hint}"
    raise UserError(reason, file=str(path))
