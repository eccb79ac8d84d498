"""The working directory and the environment: changes that a block made are undone, those of other threads stay.

An audit hook is called for each change, so nothing is compared, and a change of another thread is not mistaken for one
of the block.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from typing import Any


class _Changes:
    """What a block changed.

    Attributes:
        before: by name, the value before the block's first change (``None``: there was none), and whose it was.
    """

    def __init__(self) -> None:
        self.before: dict[str | None, tuple[str | None, _Changes | None]] = {}


_FOLDER = None
"""The working directory, next to the names of the environment's entries."""

_block: ContextVar[_Changes | None] = ContextVar("edgefl_block", default=None)
_last_changed_by: dict[str | None, _Changes | None] = {}


@contextmanager
def changes_undone() -> Iterator[None]:
    """Undo the block's changes of the working directory and of ``os.environ`` when it ends.

    The block's changes are those of its thread, and of threads that run in a copy of its context. What another thread
    changed after the block stays as it is.
    """
    _watch()
    own = _Changes()
    token = _block.set(own)
    try:
        yield
    finally:
        for name, (value, whose) in list(own.before.items()):
            if _last_changed_by.get(name) is own:
                _put_back(name, value)
                _last_changed_by[name] = whose
        _block.reset(token)


def _put_back(name: str | None, value: str | None) -> None:
    if name is _FOLDER:
        with suppress(OSError):  # it was removed, or there was none
            os.chdir(value or "")
    elif value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


@cache
def _watch() -> None:
    """Note all later changes; for the life of the process, because Python removes no audit hook."""

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("os.putenv", "os.unsetenv", "os.chdir"):
            _note(_FOLDER if event == "os.chdir" else os.fsdecode(arguments[0]))

    sys.addaudithook(note)


def _note(name: str | None) -> None:
    """Note a change that the present thread is about to make."""
    block = _block.get()
    if block is not None and name not in block.before:
        value = _folder() if name is _FOLDER else os.environ.get(name)
        block.before[name] = value, _last_changed_by.get(name)
    _last_changed_by[name] = block


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None
