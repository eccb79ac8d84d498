"""Names to parts: the built-in ones, and those that plug-ins register by entry point.

A family of parts (methods, device profiles, selectors, datasets) is a folder with one module a part, and an entry-point
group with the same meaning for parts that live outside edgefl. No list elsewhere names them.
"""

from __future__ import annotations

import importlib
import pkgutil
import threading
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from edgefl.errors import UserError, nearest

Part = TypeVar("Part")


class Registry(Generic[Part]):
    """The parts of one family by name.

    Args:
        noun: what a person calls one of them (``"method"``); used in messages.
        package: the package whose modules register the built-in parts when imported.
        group: the entry-point group of parts from elsewhere; each entry point loads the part itself.
    """

    def __init__(self, noun: str, *, package: str, group: str) -> None:
        self.noun = noun
        self._package = package
        self._group = group
        self._parts: dict[str, Part] = {}
        self._loaded = False
        self._importing = False
        self._loading = threading.RLock()

    def register(self, name: str) -> Callable[[Part], Part]:
        """A decorator that registers a part under ``name``; a name is registered once."""

        def add(part: Part) -> Part:
            if self._parts.setdefault(name, part) is not part:
                raise ValueError(f"two {self.noun}s are called '{name}'")
            return part

        return add

    def _load(self) -> None:
        if self._loaded:
            return
        # Other threads wait for the whole family; a part that asks for its own family while it is imported does not.
        with self._loading:
            if self._importing or self._loaded:
                return
            self._importing = True
            try:
                self._import_all()
            finally:
                self._importing = False
            self._loaded = True

    def _import_all(self) -> None:
        package = importlib.import_module(self._package)
        for module in sorted(info.name for info in pkgutil.iter_modules(package.__path__)):
            importlib.import_module(f"{self._package}.{module}")
        for point in sorted(entry_points(group=self._group), key=lambda point: point.name):
            if point.name not in self._parts:
                self.register(point.name)(point.load())

    def names(self) -> list[str]:
        """Every name, sorted."""
        self._load()
        return sorted(self._parts)

    def __iter__(self) -> Iterator[tuple[str, Part]]:
        return ((name, self._parts[name]) for name in self.names())

    def __getitem__(self, name: str) -> Part:
        """The part called ``name``.

        Raises:
            UserError: no part has that name; the message gives the nearest one.
        """
        self._load()
        if name not in self._parts:
            raise UserError(f"unknown {self.noun} '{name}'; {nearest(name, self._parts)}")
        return self._parts[name]
