"""A run directory under way: who works in it, what is finished, and how to go on after an interruption."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from edgefl.durable_file import aside, flush_folder, make_folder, remove_unfinished, write_durably
from edgefl.errors import UserError
from edgefl.experiment.inputs import Input, check_inputs, digests
from edgefl.experiment.summary import is_summary
from edgefl.version import __version__

STATE = "unfinished.json"
FAULTED = "faulted.json"
_LOCK = "unfinished.lock"


@dataclass(frozen=True)
class Choices:
    """What a command chose beside the scenario; a resumed run keeps to it.

    Attributes:
        methods: labels, in order.
        device: where training runs.
        train: whether anything is trained.
        cache: whether results of training are kept until their seed is done.
    """

    methods: tuple[str, ...]
    device: str
    train: bool
    cache: bool = True


class RunDirectory:
    """A run directory that this process alone works in, from its first file to its summary.

    Args:
        path: the directory.
        choices: what the command chose; ``None`` reads them from an interrupted run, or from a finished one in which
            runs ended by a fault: those are tried again.

    Attributes:
        finished: what is known of each finished run, by (label, seed): its entry in the summary, and the (alpha, batch)
            of the step costs that it used.
        inputs: digests of what the runs read, by field of the scenario.

    Raises:
        UserError: another process works there, it cannot be written, or there is no interrupted run to resume.
    """

    def __init__(self, path: Path, choices: Choices | None) -> None:
        self.path = path
        self.finished: dict[tuple[str, int], dict[str, Any]] = {}
        self.inputs: dict[str, str] = {}
        if choices is None:
            self.choices = self._read()
        else:
            self.choices = choices
        self._lock: int | None = None
        self._made = False
        self._again = choices is None and not (path / STATE).exists()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock is not None:
            os.close(self._lock)

    @property
    def opened(self) -> bool:
        """Whether this process has begun to write."""
        return self._lock is not None

    def open(self, scenario: str) -> None:
        """Make the directory, take it for this process, and write the resolved scenario, unless that was done before.

        Args:
            scenario: the resolved scenario as YAML.
        """
        if self._lock is not None:
            return
        fresh = not self.path.exists()
        try:
            make_folder(self.path)
            self._lock = os.open(self.path / _LOCK, os.O_CREAT | os.O_RDWR)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not (self.path / STATE).exists():
                self._made = not self._again
                if self._again:
                    # It speaks of runs that are about to be tried again.
                    (self.path / "summary.json").unlink(missing_ok=True)
                # The state comes last: where it is, there is a scenario to go on with.
                write_durably(self.path / "scenario.yaml", scenario)
                self._write()
        except BlockingIOError:
            raise UserError("another process is working in this run directory", file=str(self.path)) from None
        except OSError as error:
            if fresh:
                shutil.rmtree(self.path, ignore_errors=True)
            raise UserError(f"the run directory cannot be written: {error.strerror}", file=str(self.path)) from None

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
        folder = self.path / label / f"seed-{seed}"
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        for path in folder.glob("journal.sqlite*"):
            path.unlink()
        flush_folder(folder)

    def forget(self) -> None:
        """Leave no trace of a run whose input turned out to be wrong, unless one of its runs had already ended."""
        if self._made and not self.finished:
            shutil.rmtree(self.path, ignore_errors=True)

    def all_finished(self) -> None:
        """The summary is written: there is nothing left to resume."""
        for label, seed in self.finished:
            self._clear(label, seed)  # again: a kill may have come between a run's end and this
        sound = {run: known for run, known in self.finished.items() if known["entry"]["stop"]["reason"] != "fault"}
        if len(sound) < len(self.finished):
            write_durably(self.path / FAULTED, json.dumps(self._state(sound)))
        else:
            (self.path / FAULTED).unlink(missing_ok=True)
        remove_unfinished(self.path)
        (self.path / _LOCK).unlink()
        flush_folder(self.path)  # the state goes last: where it is gone, so is all that a run needs to be resumed
        (self.path / STATE).unlink()
        flush_folder(self.path)

    def _write(self) -> None:
        write_durably(self.path / STATE, json.dumps(self._state(self.finished)))

    def _state(self, finished: Mapping[tuple[str, int], dict[str, Any]]) -> dict[str, Any]:
        return {
            "edgefl": __version__,
            "inputs": self.inputs,
            "choices": {**vars(self.choices), "methods": list(self.choices.methods)},
            "finished": [{"label": label, "seed": seed, **known} for (label, seed), known in finished.items()],
        }

    def _read(self) -> Choices:
        name = STATE if (self.path / STATE).exists() or not (self.path / FAULTED).exists() else FAULTED
        try:
            state = json.loads((self.path / name).read_text(encoding="utf-8"))
            choices: Mapping[str, Any] = state["choices"]
            for each in state["finished"]:
                costs = [(int(alpha), int(batch)) for alpha, batch in each["costs"]]
                self.finished[each["label"], int(each["seed"])] = {"entry": each["entry"], "costs": costs}
            if state["edgefl"] != __version__:
                found = f"was begun by edgefl {state['edgefl']}, this is {__version__}"
                raise UserError(f"{found}; only the same version can go on", file=str(self.path))
            self.inputs = {str(field): str(digest) for field, digest in state["inputs"].items()}
            return Choices(**{**choices, "methods": tuple(choices["methods"])})
        except FileNotFoundError:
            summary = self.path / "summary.json"
            reason = "the run in it is finished" if is_summary(summary) else "there is no interrupted run in it"
            if summary.exists() and not is_summary(summary):
                reason = "summary.json is damaged, and what is needed to go on was removed when the run had ended"
            raise UserError(f"nothing to resume: {reason}", file=str(self.path)) from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{name} is damaged ({error}); the run cannot be resumed", file=str(self.path)) from None


def is_interrupted(path: Path) -> bool:
    """Whether a folder holds a run that was begun and not finished."""
    return (path / STATE).is_file()


def is_unbegun(path: Path) -> bool:
    """Whether a folder holds only what a process leaves that was killed before its first run began."""
    names = {each.name for each in path.iterdir()}
    written = {path / "scenario.yaml", path / STATE}
    return _LOCK in names and names <= {_LOCK, "scenario.yaml", *(aside(each).name for each in written)}
