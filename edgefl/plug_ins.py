"""Parts that installed packages announce by entry point: names come from metadata; a part is loaded when it is named.

A plug-in is code of somebody else. Whatever happens while it is imported, even ``sys.exit``, becomes one
:class:`~edgefl.errors.UserError` that names the plug-in and its package, and concerns nobody who does not name it.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from edgefl.errors import UserError, in_words
from edgefl.process_state import process_state_kept

_LOADING = threading.RLock()


Check = Callable[[Any], None]
"""Raises :class:`UserError` where an object is no part of a family; the message says what was expected."""


def anything(part: Any) -> None:
    """The check that every object passes."""


class PlugIns:
    """The entry points of one group.

    Args:
        noun: what a person calls one of the parts (``"method"``); used in messages.
        group: the entry-point group; each entry point loads a part.
        check: refuses objects that are no such part.
    """

    def __init__(self, noun: str, group: str, check: Check = anything) -> None:
        self._noun = noun
        self._group = group
        self._check = check
        self._loaded: dict[str, Any] = {}

    @cached_property
    def _points(self) -> dict[str, list[EntryPoint]]:
        points: dict[str, list[EntryPoint]] = {}
        for point in entry_points(group=self._group):
            points.setdefault(point.name, []).append(point)
        return points

    def names(self) -> list[str]:
        """Every name, sorted; nothing is imported for it."""
        return sorted(self._points)

    def __contains__(self, name: str) -> bool:
        return name in self._points

    def origin(self, name: str) -> str:
        """The package that announces a name, and where the part lies; of each, where there are several."""
        return " and ".join(f"{_package(point)} ({point.value})" for point in self._points[name])

    def is_announced(self, name: str, part: Any) -> bool:
        """Whether a part is the one that is announced under a name; nothing is imported for it."""
        if self._loaded.get(name) is part:
            return True
        # A module that registers its part itself may have been imported for another of its parts.
        modules = [(point, sys.modules.get(point.module)) for point in self._points[name]]
        return any(getattr(module, point.attr, None) is part for point, module in modules)

    def load(self, name: str) -> Any:
        """The part called ``name``, which is imported at the first call; its module prints to standard error.

        Raises:
            UserError: several packages announce the name, importing it raised an error, or it is no such part.
        """
        with _LOADING:
            if name not in self._loaded:
                try:
                    self._loaded[name] = self._load(name)
                except UserError as error:
                    self._loaded[name] = error  # a module that failed is not imported again
        part = self._loaded[name]
        if isinstance(part, UserError):
            raise part.located()
        return part

    def _load(self, name: str) -> Any:
        point, *others = self._points[name]
        if others:
            raise UserError(
                f"several {self._noun}s are called '{name}': those of {self.origin(name)}; uninstall all but one"
            )
        try:
            # Importing may neither change this process's settings nor write into a command's output.
            with process_state_kept(), contextlib.redirect_stdout(sys.stderr):
                part = point.load()
            self._check(part)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self.fault(name, error) from error
        return part

    def clash(self, name: str) -> UserError:
        """The error that says that a plug-in is called like a part of edgefl."""
        return UserError(
            f"two {self._noun}s are called '{name}': edgefl's own and that of {self.origin(name)}; uninstall or rename "
            "the latter"
        )

    def fault(self, name: str, error: BaseException) -> UserError:
        """The error that says which plug-in cannot be used, and why."""
        return UserError(f"the {self._noun} '{name}' of {self.origin(name)} cannot be used: {in_words(error)}")


def _package(point: EntryPoint) -> str:
    """The distribution that announces an entry point."""
    return "an unknown package" if point.dist is None else f"the package {point.dist.name} {point.dist.version}"
