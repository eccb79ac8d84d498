"""``edgefl`` as a program: runs the command and turns any error into one message and an exit code.

Exit codes: 0 done; 2 the user's input is wrong; 1 a fault; 128 + the signal's number when stopped by Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import typer

from edgefl.cli.app import app
from edgefl.cli.printing import Stopped, flush, say
from edgefl.errors import Note, UserError

DONE, FAULT, WRONG_INPUT = 0, 1, 2

INSISTING_SECONDS = 1.0
"""A second Ctrl-C or SIGTERM after this time ends the process at once; an earlier one counts as the same signal."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``edgefl`` with these arguments (the process's own if not given) and return the exit code."""
    alone = arguments is None
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):  # characters that their encoding lacks are written as escapes
        with suppress(AttributeError, ValueError):  # not a text stream of Python's
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    with _stopping_politely(to_the_end=alone) as received:
        advice = None
        try:
            code = _invoke(arguments)
        except (KeyboardInterrupt, typer.Abort):
            code = 128 + signal.SIGINT
        except Stopped as stopped:
            code, advice = 128 + signal.SIGINT, str(stopped)
        if received or code == 128 + signal.SIGINT:
            stop = received[0] if received else signal.SIGINT
            _say(f"stopped by {signal.Signals(stop).name}; finished work is kept")
            if advice is not None:
                _say(advice)
            code = 128 + stop
    return code


def _invoke(arguments: list[str]) -> int:
    try:
        with _notes_in_a_line():
            result = app(args=arguments, prog_name="edgefl", standalone_mode=False)
        flush()
    except UserError as error:
        _say(f"error: {error}")
        return WRONG_INPUT
    except (KeyboardInterrupt, typer.Abort, typer.Exit, Stopped):
        raise
    except BaseException as error:  # noqa: BLE001  (the last resort of a program; a plug-in may call sys.exit)
        if _is_usage_error(error):
            return WRONG_INPUT
        return _fault(error, arguments)
    # The return value of a command is ignored; a typer.Exit arrives here as its exit code.
    return result if isinstance(result, int) else DONE


@contextmanager
def _notes_in_a_line() -> Iterator[None]:
    """Print each note as one line, without its place in the code."""
    with warnings.catch_warnings():
        warnings.simplefilter("default", Note)
        shown = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **options: Any) -> None:
            if issubclass(category, Note):
                _say(f"warning: {message}")
            else:
                shown(message, category, *place, **options)

        warnings.showwarning = show
        yield


def _is_usage_error(error: BaseException) -> bool:
    """Print the message of a misused option. Its class is in click or in typer, depending on typer's version."""
    form = getattr(error, "format_message", None)
    if form is None:
        return False
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "edgefl"
    # Some versions of typer convert with pydantic, which adds the words "Value error".
    what = form().replace(": Value error, ", ": ") or f"'{command}' needs a command"
    _say(f"error: {what} (see '{command} --help')")
    return True


def _fault(error: BaseException, arguments: list[str]) -> int:
    if "--traceback" in arguments or os.environ.get("EDGEFL_TRACEBACK", "0") not in ("", "0"):
        _say("".join(traceback.format_exception(error)).rstrip())
    else:
        texts = [" ".join(text.split()) for text in (str(error), *getattr(error, "__notes__", ()))]
        reason = "; ".join(filter(None, texts)) or "no message"
        _say(f"fault: {type(error).__name__}: {reason} (traceback: EDGEFL_TRACEBACK=1 or 'edgefl --traceback …')")
    return FAULT


def _say(text: str) -> None:
    say(text, err=True)


@contextmanager
def _stopping_politely(*, to_the_end: bool) -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM raise KeyboardInterrupt in the command, so that files are closed; yields the signals received.

    A second, later signal ends the process without waiting for that.

    Args:
        to_the_end: the process ends after the command, so a second signal must not disturb the interpreter's shutdown.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set signal handlers
        yield received
        return

    first = 0.0

    def stop(number: int, _frame: FrameType | None) -> None:
        nonlocal first
        if received:
            # One Ctrl-C may arrive twice. A later one ends the process at once: a killed run can always be resumed.
            if time.monotonic() - first > INSISTING_SECONDS:
                os._exit(128 + number)
            return
        first = time.monotonic()
        received.append(number)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if received and to_the_end else handler)
