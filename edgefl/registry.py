"""Registries of parts by name: built-in parts, and parts that plug-ins register by entry point.

A family of parts (methods, device profiles, selectors, datasets) is a folder with one module for each part, and an
entry-point group for parts of other packages. No other list of the parts exists.
"""

from __future__ import annotations

import importlib
import pkgutil
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from edgefl.errors import BrokenPlugIn, UserError, WrongAnswer, nearest
from edgefl.plug_ins import Check, PlugIns, anything
from edgefl.validation import shown

Part = TypeVar("Part")
Made = TypeVar("Made")


class Registry(Generic[Part]):
    """The parts of one family by name.

    Built-in parts are imported together; a plug-in's part is imported when it is requested by its name.

    Args:
        noun: the word for one part (``"method"``), for messages.
        package: the package whose modules register the built-in parts when imported.
        group: the entry-point group of the plug-ins' parts; each entry point loads the part itself. Empty: plug-ins
            cannot add parts.
        check: raises an error for a plug-in's object that is not such a part; see :func:`class_of` and
            :func:`object_of`.
    """

    def __init__(self, noun: str, *, package: str, group: str = "", check: Check = anything) -> None:
        self.noun = noun
        self._package = package
        self._plug_ins = PlugIns(noun, group, check)
        self._parts: dict[str, Part] = {}
        self._loaded = False
        self._importing = False
        self._loading = threading.RLock()

    def register(self, name: str) -> Callable[[Part], Part]:
        """A decorator that registers a part under ``name``; each name can be registered once."""

        def add(part: Part) -> Part:
            if self._parts.setdefault(name, part) is not part:
                raise ValueError(f"two {self.noun}s are called '{name}'")
            return part

        return add

    def _load(self) -> None:
        """Import the built-in parts."""
        if self._loaded:
            return
        # Other threads wait until the whole family is imported; a part that uses its own family during import does not.
        with self._loading:
            if self._importing or self._loaded:
                return
            self._importing = True
            try:
                package = importlib.import_module(self._package)
                for module in sorted(info.name for info in pkgutil.iter_modules(package.__path__)):
                    importlib.import_module(f"{self._package}.{module}")
            finally:
                self._importing = False
            self._loaded = True

    def names(self) -> list[str]:
        """All names, sorted, including those of broken plug-ins; no plug-in is imported."""
        self._load()
        return sorted({*self._parts, *self._plug_ins.names()})

    def __getitem__(self, name: str) -> Part:
        """The part called ``name``.

        Raises:
            UserError: no part has this name (the message suggests the nearest one), two parts have it, or it comes from
                a broken plug-in.
        """
        self._load()
        if name in self._plug_ins:
            return self._plugged_in(name)
        if name not in self._parts:
            raise UserError(f"unknown {self.noun} '{name}'; {nearest(name, self.names())}")
        return self._parts[name]

    def _plugged_in(self, name: str) -> Part:
        if name in self._parts and not self._plug_ins.is_announced(name, self._parts[name]):
            raise self._plug_ins.clash(name)
        part: Part = self._plug_ins.load(name)
        return self._parts.setdefault(name, part)

    def name_of(self, part: Part) -> str | None:
        """The name of a registered part; ``None`` if it is not registered, or is a plug-in's that was not requested."""
        return next((name for name in sorted(self._parts) if self._parts[name] is part), None)

    def of_each(self, make: Callable[[str, Part], Made]) -> dict[str, Made]:
        """The result of ``make`` for every part, by name.

        A plug-in that cannot be loaded, or for which ``make`` fails, is omitted with a :class:`BrokenPlugIn` warning.
        """
        made: dict[str, Made] = {}
        for name in self.names():
            try:
                made[name] = make(name, self[name])
            except Exception as error:
                if name not in self._plug_ins:
                    raise
                fault = error if isinstance(error, UserError) else self._plug_ins.fault(name, error)
                warnings.warn(str(fault), BrokenPlugIn, stacklevel=1)  # from one place, so that it is shown once
        return made

    @contextmanager
    def blaming(self, part: Part) -> Iterator[None]:
        """Errors in the block are those of ``part``, which the message names, with the package of a plug-in.

        Raises:
            UserError: the block raised a :class:`~edgefl.errors.WrongAnswer`, or the part is a plug-in's and raised
                anything else. A :class:`UserError` is passed on unchanged.
        """
        try:
            yield
        except (KeyboardInterrupt, UserError):
            raise
        except BaseException as error:
            name = self.name_of(part)
            if name is not None and name in self._plug_ins:
                raise self._plug_ins.fault(name, error) from error
            if not isinstance(error, WrongAnswer):
                raise
            shown_name = name or getattr(part, "__name__", str(part))
            raise UserError(f"the {self.noun} '{shown_name}' cannot be used: {error}") from error

    def __iter__(self) -> Iterator[tuple[str, Part]]:
        return iter(self.of_each(lambda _, part: part).items())


def class_of(base: type) -> Check:
    """A check that parts are classes derived from ``base`` that define all its abstract methods.

    >>> class_of(dict)(3)
    Traceback (most recent call last):
    edgefl.errors.UserError: expected a class derived from dict, found 3
    """

    def check(part: Any) -> None:
        if not (isinstance(part, type) and issubclass(part, base)):
            raise UserError(f"expected a class derived from {base.__name__}, found {shown(part)}")
        missing = ", ".join(sorted(getattr(part, "__abstractmethods__", ())))
        if missing:
            raise UserError(f"expected a class derived from {base.__name__} that defines {missing}")

    return check


def object_of(kind: type) -> Check:
    """A check that parts are objects of the class ``kind``."""

    def check(part: Any) -> None:
        if not isinstance(part, kind):
            raise UserError(f"expected an object of the class {kind.__name__}, found {shown(part)}")

    return check
