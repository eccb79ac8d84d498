"""The inputs that a run's results depend on: files, by digest, and packages. A run continues only with the same."""

import json
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import Any, NamedTuple

from edgefl.data.federated import reads_samples
from edgefl.data.location import data_root
from edgefl.errors import UserError, locating
from edgefl.experiment.wiring import recipe_of
from edgefl.files import read_bytes, write_file
from edgefl.input_file import code_files, digest_of_file, input_files, parts_of
from edgefl.options import Options
from edgefl.record import RunPaths, names
from edgefl.scenario import Scenario, resolve, with_overrides
from edgefl.scenario.overrides import what_decides
from edgefl.user_code import allow
from edgefl.yaml_file import read_yaml

SCENARIO, DATA = "scenario", "data"

_KNOWN = frozenset({"edgefl", "torch", "numpy", "pydantic", *sys.stdlib_module_names})


class Input(NamedTuple):
    """One input of a run: its path, and the digest of its contents."""

    file: str
    digest: str


def digest_of_scenario(data: Mapping[str, Any]) -> str:
    """The SHA-256 of a resolved ``scenario.yaml``'s contents, without the paths of files and the engine."""
    text = json.dumps(what_decides(data), sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()


def scenario_as_written(folder: Path) -> dict[str, Input]:
    """The scenario of a run directory as an input; another build may have written it, with other defaults."""
    file = folder / names.SCENARIO
    return {SCENARIO: Input(str(file), digest_of_scenario(read_yaml(file)))}


class Inputs:
    """The present inputs of the run of a scenario in a folder."""

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self._data = scenario.data
        self._scenario = Input(str(folder / names.SCENARIO), digest_of_scenario(resolve(scenario)))
        self._pixels = reads_samples(scenario.data, scenario.evaluation.split)
        methods = {each.label: recipe_of(scenario, each) for each in scenario.methods if each.allowed}
        self.files = input_files(scenario) | input_files({"methods": methods})

    def now(self, *, trains: bool, copies: Mapping[str, Path] | None = None) -> dict[str, Input]:
        """Each input by its field; images if it ``trains``. ``copies`` of Python files are read in their place."""
        found = {SCENARIO: self._scenario}
        copied = {self.files[field].name: path for field, path in (copies or {}).items()}  # fields may name the same
        for field, file in self.files.items():
            with locating(field=field):
                path = copied.get(file.name) or file.found()
                found[field] = Input(str(path), digest_of_file(path))
        if (trains or self._pixels) and (copies is None or not code_files(self._data)):
            from edgefl.data.dataset import content_of_set

            found[DATA] = Input(str(data_root(self._data.root)), content_of_set(self._data))
        return found


def keep_code(scenario: Options, known: Mapping[str, str], folder: Path) -> None:
    """Write copies of the scenario's Python files into a run directory."""
    paths = RunPaths(folder)
    contents = {field: (file, read_bytes(file, what="a Python file")) for field, file in code_files(scenario).items()}
    check_inputs(known, {field: Input(str(file), sha256(code).hexdigest()) for field, (file, code) in contents.items()})
    if contents:
        paths.inputs.mkdir(exist_ok=True)
    for field, (_, code) in contents.items():
        write_file(paths.code(field), code)


def allow_code(scenario: Scenario, known: Mapping[str, str], folder: Path, *, trust: bool) -> Scenario:
    """Let a run's Python files be executed, if they are this machine's own; the scenario with the parts in them."""
    for field, file in code_files(scenario).items():
        if not file.exists():
            copy = f"{names.INPUTS}/{field}.py"
            message = f"no such file; the run directory has a copy of it, {copy}: read it, and copy it here"
            raise UserError(message, file=str(file), field=field)
        within = file.resolve().is_relative_to(folder.resolve())
        if not trust and (within or known.get(field) != digest_of_file(file)):
            reason = "it is part of the run directory" if within else "it is not the file that the run began with"
            message = f"this Python file is not executed, since {reason}; read it, and add --trust to execute it"
            raise UserError(message, file=str(file), field=field)
        allow(file)
    return with_overrides(scenario, (), run_code=False) if code_files(scenario) else scenario


def digests(inputs: Mapping[str, Input]) -> dict[str, str]:
    """Only the digests, which do not depend on the machine."""
    return {field: each.digest for field, each in inputs.items()}


def check_inputs(known: Mapping[str, str], found: Mapping[str, Input]) -> None:
    """Check that the present inputs have the digests that were known when the run began."""
    for field, each in found.items():
        if known.get(field) != each.digest:
            raise UserError(
                "has changed since the run began, so the finished part of the run does not match it; expected the old "
                "contents, or a new run in another folder",
                file=each.file,
                field=field,
            )


def software_of(scenario: Scenario) -> dict[str, str]:
    """The versions of torch and of the packages that contain a scenario's parts or that they depend on, by name."""
    methods = [(each.recipe, recipe_of(scenario, each)) for each in scenario.methods if each.allowed]
    parts = list(parts_of((scenario, methods)))
    names = {"torch", *(name for part in parts for name in getattr(type(part), "packages", ()))}
    foreign = {_module(part).partition(".")[0] for part in parts} - _KNOWN
    if foreign:
        packages = packages_distributions()
        names |= {name for module in foreign for name in packages.get(module, ())}
    return versions_of(names)


def versions_of(names: Iterable[str]) -> dict[str, str]:
    """The versions of the packages that are installed, by name."""
    found = {}
    for name in sorted(names):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def in_words(software: Mapping[str, str]) -> str:
    """Packages and their versions.

    >>> in_words({"torch": "2.9.1", "my-parts": "1.0"})
    'torch 2.9.1 and my-parts 1.0'
    """
    return " and ".join(f"{name} {version}" for name, version in software.items()) or "no packages"


def _module(part: Any) -> str:
    # A function or a class is of its own module; type() of it would be one of Python's.
    return str(getattr(part if callable(part) else type(part), "__module__", None) or type(part).__module__)
