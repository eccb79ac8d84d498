"""Digests of a run's inputs: a run continues only with the inputs that it began with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from edgefl.data.location import data_root
from edgefl.data.sizes import reads_pixels
from edgefl.errors import UserError
from edgefl.experiment.wiring import recipe_of
from edgefl.input_file import digest_of_file, find_input, input_files
from edgefl.record import names
from edgefl.scenario import Scenario, resolve
from edgefl.scenario.paths import what_decides

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
    return hashlib.sha256(text.encode()).hexdigest()


class Inputs:
    """The present inputs of a run on disk.

    Args:
        scenario: the scenario of the run.
        folder: the run directory.
    """

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self._data = scenario.data
        self._scenario = Input(str(folder / names.SCENARIO), digest_of_scenario(resolve(scenario)))
        self._pixels = reads_pixels(scenario.data, scenario.evaluation.split)
        methods = {each.label: recipe_of(scenario, each) for each in scenario.methods}
        self.files = input_files(scenario) | input_files({"methods": methods})

    def now(self, *, trains: bool) -> dict[str, Input]:
        """Each input by its field of the scenario.

        Args:
            trains: whether images are read, even if their counts do not require it.

        Raises:
            UserError: a file is missing or unreadable.
        """
        found = {SCENARIO: self._scenario}
        for field, file in self.files.items():
            try:
                path = find_input(file)
                found[field] = Input(str(path), digest_of_file(path))
            except UserError as error:
                raise error.located(field=field) from None
        if trains or self._pixels:
            from edgefl.data.dataset import content_of_set

            found[DATA] = Input(str(data_root(self._data.root)), content_of_set(self._data))
        return found


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
                "the run directory has no digest of it, so it cannot be compared with what the run began with",
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
