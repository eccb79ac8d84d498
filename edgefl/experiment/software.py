"""The packages on which a run's results depend besides edgefl: torch, plug-ins, and other libraries of its parts."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from typing import Any

from edgefl.experiment.wiring import recipe_of
from edgefl.input_file import parts_of
from edgefl.methods.recipe import METHODS
from edgefl.scenario import Scenario

_KNOWN = frozenset({"edgefl", "torch", "numpy", "pydantic", *sys.stdlib_module_names})


def software_of(scenario: Scenario) -> dict[str, str]:
    """The versions of torch and of the packages that contain a scenario's parts or that they depend on, by name."""
    parts = list(_parts(scenario))
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


def _parts(scenario: Scenario) -> Iterator[Any]:
    """Everything that a scenario and its methods consist of."""
    methods = [(METHODS[each.name], recipe_of(scenario, each)) for each in scenario.methods]
    return parts_of((scenario, methods))


def _module(part: Any) -> str:
    # A function or a class is of its own module; type() of it would be one of Python's.
    return str(getattr(part if callable(part) else type(part), "__module__", None) or type(part).__module__)
