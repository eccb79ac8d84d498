"""Standard output of a command: a reader that has gone, or characters that its encoding lacks, are no fault."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from edgefl.errors import EdgeflError


class OutputFailed(EdgeflError):  # noqa: N818  (what happened to it)
    """Standard output cannot be written, because the disk is full for example."""


class ReaderGone(OutputFailed):
    """The reader of standard output (``| head``) has closed the pipe."""


class _Output:
    """Standard output; its errors differ from those of other files."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: Any) -> Any:
        with _said():
            return self._stream.write(text)

    def flush(self) -> None:
        with _said():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _said() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise ReaderGone(str(error)) from None
    except OSError as error:
        raise OutputFailed(f"standard output cannot be written: {error.strerror or error}") from None


@contextmanager
def standard_streams() -> Iterator[None]:
    """Prepare the standard streams for a command: characters that their encoding lacks are written as escapes."""
    before: Any = sys.stdout
    for stream in (sys.stdout, sys.stderr):
        if getattr(stream, "errors", None) in {"strict", "surrogateescape"}:  # the latter in the locale C
            with suppress(AttributeError, ValueError):  # not a text stream of Python's
                stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    sys.stdout = _Output(before)  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.stdout = before


def discard_output() -> None:
    """Redirect standard output to the null device, so that the interpreter does not report the error again at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
