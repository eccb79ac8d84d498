"""The settings of this process that any code can change for all code that runs after it."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from edgefl.lent_streams import streams_lent
from edgefl.surroundings import changes_undone
from edgefl.torch_settings import neutral_torch


class Setting(NamedTuple):
    """A setting of the interpreter: functions that read and write it."""

    read: Callable[[], Any]
    write: Callable[[Any], object]


def _attribute(module: Any, name: str) -> Setting:
    return Setting(lambda: getattr(module, name), lambda value: setattr(module, name, value))


def _items(module: Any, name: str) -> Setting:
    """A list that others hold: its items are restored, in the same list."""

    def write(before: tuple[list[Any], list[Any]]) -> None:
        held, items = before
        held[:] = items
        setattr(module, name, held)

    return Setting(lambda: (getattr(module, name), list(getattr(module, name))), write)


_SIGNALS = [int(number) for number in signal.valid_signals()]
_handler_of: Callable[[int], Any] = getattr(signal.getsignal, "__wrapped__", signal.getsignal)
"""Without the search for an enum's member, which takes most of the time of a block."""


def _handlers() -> dict[int, Any]:
    """The handlers of signals that Python code can restore."""
    found = {number: _handler_of(number) for number in _SIGNALS}
    return {number: handler for number, handler in found.items() if handler is not None}


def _handle(handlers: dict[int, Any]) -> None:
    if threading.current_thread() is not threading.main_thread():
        return  # only the main thread may change them, so the block has not
    for number, handler in handlers.items():
        if _handler_of(number) != handler:
            with suppress(OSError):
                signal.signal(number, handler)


SETTINGS = {
    # Not ``catch_warnings``, after which Python repeats warnings that it has already shown.
    "warning filters": _items(warnings, "filters"),
    "warnings": _attribute(warnings, "showwarning"),
    "imports": _items(sys, "path"),
    "uncaught errors": _attribute(sys, "excepthook"),
    "uncaught errors of threads": _attribute(threading, "excepthook"),
    "ignored errors": _attribute(sys, "unraisablehook"),
    "recursion limit": Setting(sys.getrecursionlimit, sys.setrecursionlimit),
    "switch interval": Setting(sys.getswitchinterval, sys.setswitchinterval),
    "garbage collection": Setting(gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
    "log": Setting(lambda: logging.root.manager.disable, logging.disable),
    "blocked signals": Setting(
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        lambda blocked: signal.pthread_sigmask(signal.SIG_SETMASK, blocked),
    ),
    "signals": Setting(_handlers, _handle),
}
"""What is restored besides PyTorch's settings, the streams, the working directory and the environment."""


def end_if_forked(process: int, error: BaseException | None = None) -> None:
    """End this process if it is a copy that a part's code forked; it must not continue as a second edgefl process.

    Args:
        process: the id of the process that called the part.
        error: the error that the part raised, if any; ``sys.exit`` keeps its exit code.
    """
    if os.getpid() != process:
        code = error.code if isinstance(error, SystemExit) else error
        os._exit(code if isinstance(code, int) else int(code is not None))


@contextmanager
def process_state_kept() -> Iterator[None]:
    """Restore the process's global settings when the block ends, also after an error.

    These are the working directory, the environment, the standard streams, the interpreter's :data:`SETTINGS`, NumPy's
    handling of floating-point errors, and PyTorch's settings, which are neutral while the block runs. The block runs
    code of plug-ins, which may change any of them; this must not affect a method that runs later.

    >>> import os
    >>> with process_state_kept():
    ...     os.environ["EDGEFL_EXAMPLE"] = "1"
    >>> "EDGEFL_EXAMPLE" in os.environ
    False
    """
    import numpy as np

    with changes_undone(), streams_lent(), np.errstate(), neutral_torch():
        before = {name: setting.read() for name, setting in SETTINGS.items()}
        process = os.getpid()
        try:
            yield
        except BaseException as error:
            end_if_forked(process, error)
            raise
        finally:
            end_if_forked(process)
            for name, setting in SETTINGS.items():
                if setting.read() != before[name]:
                    setting.write(before[name])
