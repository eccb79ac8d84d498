"""Digests of a run's inputs: a run continues only with the inputs that it began with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from edgefl.data.federated import reads_samples
from edgefl.data.location import data_root
from edgefl.errors import UserError
from edgefl.experiment.wiring import recipe_of
from edgefl.files import write_file
from edgefl.input_file import code_files, digest_of_file, input_files
from edgefl.options import Options
from edgefl.record import RunPaths, names
from edgefl.scenario import Scenario, resolve
from edgefl.scenario.paths import what_decides
from edgefl.user_code import allow, read_code

SCENARIO, DATA = "scenario", "data"


class Input(NamedTuple):
    """One input of a run.

    Attributes:
        file: its path.
        digest: the digest of its contents.
    """

    file: str
    digest: str


def digest_of_scenario(data: Mapping[str, Any]) -> str:
    """The SHA-256 of a resolved ``scenario.yaml``'s contents, without the paths of files and the engine.

    Args:
        data: the file's contents as plain data, as also returned by :func:`edgefl.scenario.resolve`.
    """
    text = json.dumps(what_decides(data), sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()


class Inputs:
    """The present inputs of a run on disk.

    Args:
        scenario: the scenario of the run.
        folder: the run directory.
    """

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self._data = scenario.data
        self._scenario = Input(str(folder / names.SCENARIO), digest_of_scenario(resolve(scenario)))
        self._pixels = reads_samples(scenario.data, scenario.evaluation.split)
        methods = {each.label: recipe_of(scenario, each) for each in scenario.methods}
        self.files = input_files(scenario) | input_files({"methods": methods})

    def now(self, *, trains: bool, copies: Mapping[str, Path] | None = None) -> dict[str, Input]:
        """Each input by its field of the scenario.

        Args:
            trains: whether images are read, even if their counts do not require it.
            copies: copies of the Python files, by field: read these, and no data that a Python file returns.

        Raises:
            UserError: a file is missing or unreadable.
        """
        found = {SCENARIO: self._scenario}
        for field, file in self.files.items():
            try:
                path = file.found() if copies is None or field not in copies else copies[field]
                found[field] = Input(str(path), digest_of_file(path))
            except UserError as error:
                raise error.located(field=field) from None
        if (trains or self._pixels) and (copies is None or not code_files(self._data)):
            from edgefl.data.dataset import content_of_set

            found[DATA] = Input(str(data_root(self._data.root)), content_of_set(self._data))
        return found


def keep_code(scenario: Options, known: Mapping[str, str], folder: Path) -> None:
    """Write copies of the scenario's Python files into a run directory.

    Args:
        scenario: the scenario.
        known: digests of the run's inputs, by field.
        folder: the run directory.

    Raises:
        UserError: a file is missing, or has other contents than when its digest was computed.
        OSError: a copy cannot be written.
    """
    paths = RunPaths(folder)
    contents = {field: (file, read_code(file)) for field, file in code_files(scenario).items()}
    check_inputs(known, {field: Input(str(file), sha256(code).hexdigest()) for field, (file, code) in contents.items()})
    if contents:
        paths.inputs.mkdir(exist_ok=True)
    for field, (_, code) in contents.items():
        write_file(paths.code(field), code)


def allow_code(scenario: Scenario, known: Mapping[str, str], folder: Path, *, trust: bool) -> None:
    """Let the Python files of a run directory's scenario be executed.

    A file of the same contents outside the directory is this machine's own; any other may be somebody else's.

    Args:
        scenario: the scenario of the directory.
        known: digests of the run's inputs, by field.
        folder: the run directory.
        trust: allow every file.

    Raises:
        UserError: a file is in the directory, missing, or has other contents, and is not trusted.
    """
    for field, file in code_files(scenario).items():
        if not file.exists():
            copy = f"{names.INPUTS}/{field}.py"
            raise UserError(
                f"no such file; the run directory has a copy of it, {copy}: read it, and copy it here",
                file=str(file),
                field=field,
            )
        within = file.resolve().is_relative_to(folder.resolve())
        if not trust and (within or known.get(field) != digest_of_file(file)):
            reason = "it is part of the run directory" if within else "it is not the file that the run began with"
            raise UserError(
                f"this Python file is not executed, since {reason}; read it, and add --trust to execute it",
                file=str(file),
                field=field,
            )
        allow(file)


def digests(inputs: Mapping[str, Input]) -> dict[str, str]:
    """Only the digests, which do not depend on the machine."""
    return {field: each.digest for field, each in inputs.items()}


def check_inputs(known: Mapping[str, str], found: Mapping[str, Input]) -> None:
    """Check that the inputs have the known digests.

    Args:
        known: the digests when the run began, by field.
        found: the present inputs.

    Raises:
        UserError: one differs or is not known; the error contains its file and field.
    """
    for field, each in found.items():
        then = known.get(field)
        if then is None:
            raise UserError(
                "the run directory has no digest of it, so it cannot be checked for changes",
                file=each.file,
                field=field,
            )
        if then != each.digest:
            raise UserError(
                "has changed since the run began, so the finished part of the run does not match it; expected the old "
                "contents, or a new run in another folder",
                file=each.file,
                field=field,
            )
