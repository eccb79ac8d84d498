"""Parts that installed packages register by entry point. Names come from metadata; a part is imported at first use.

A plug-in is third-party code. Any error while it is imported, even ``sys.exit``, becomes one
:class:`~edgefl.errors.UserError` that names the plug-in and its package. It is raised only if the plug-in is used.
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

_LOADING = threading.RLock()


Check = Callable[[Any], None]
"""Raises :class:`UserError` if an object is not a part of a family; the message states what was expected."""


def anything(part: Any) -> None:
    """A check that accepts every object."""


class PlugIns:
    """The entry points of one group.

    Args:
        noun: the word for one part (``"method"``), for messages.
        group: the entry-point group; each entry point loads a part.
        check: raises an error for an object that is not such a part.
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
        """All names, sorted; nothing is imported."""
        return sorted(self._points)

    def __contains__(self, name: str) -> bool:
        return name in self._points

    def origin(self, name: str) -> str:
        """The package that registers a name, and the part's module; if there are several packages, all of them."""
        return " and ".join(f"{_package(point)} ({point.value})" for point in self._points[name])

    def is_announced(self, name: str, part: Any) -> bool:
        """Whether a part is the one registered under a name by entry point; nothing is imported."""
        if self._loaded.get(name) is part:
            return True
        # A module that registers its part itself may have been imported for another part.
        modules = [(point, sys.modules.get(point.module)) for point in self._points[name]]
        return any(getattr(module, point.attr, None) is part for point, module in modules)

    def load(self, name: str) -> Any:
        """The part called ``name``, imported at the first call; output of its module goes to standard error.

        Raises:
            UserError: several packages register the name, importing it raised an error, or it is not such a part.
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
            raise UserError(f"several {self._noun}s are called '{name}': {self.origin(name)}; uninstall all but one")
        try:
            with contextlib.redirect_stdout(sys.stderr):  # not into a command's output
                part = point.load()
            self._check(part)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self.fault(name, error) from error
        return part

    def clash(self, name: str) -> UserError:
        """The error for a plug-in that has the name of a built-in part."""
        return UserError(
            f"two {self._noun}s are called '{name}': the built-in one and that of {self.origin(name)}; uninstall or "
            "rename the latter"
        )

    def fault(self, name: str, error: BaseException) -> UserError:
        """The error for a plug-in that cannot be used, with the reason."""
        return UserError(f"the {self._noun} '{name}' of {self.origin(name)} cannot be used: {in_words(error)}")


def _package(point: EntryPoint) -> str:
    """The distribution that registers an entry point."""
    return "an unknown package" if point.dist is None else f"the package {point.dist.name} {point.dist.version}"
