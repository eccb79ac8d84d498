"""The standard streams of a command: closed, full or with an encoding that lacks characters, they stop nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from edgefl.errors import EdgeflError
from edgefl.lent_streams import LentStream, streams_lent


class OutputFailed(EdgeflError):  # noqa: N818  (what happened to it)
    """Standard output cannot be written, because the disk is full for example."""


class ReaderGone(OutputFailed):
    """The reader of standard output (``| head``) has closed the pipe."""


class _Output(LentStream):
    """Standard output; the message of an error names the stream."""

    def write(self, text: Any) -> Any:
        """Write, as the stream does.

        Raises:
            ReaderGone: the reader has closed it.
            OutputFailed: another error of the system.
        """
        with _said():
            return self._stream.write(text)

    def flush(self) -> None:
        """Flush, with the errors of :meth:`write`."""
        with _said():
            self._stream.flush()


class _Messages(LentStream):
    """Standard error; text that cannot be written is discarded, because no stream is left to report it."""

    def write(self, text: Any) -> Any:
        """Write, or do nothing."""
        with suppress(OSError):
            return self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, or do nothing."""
        with suppress(OSError):
            self._stream.flush()


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
    """Prepare the standard streams for a command; the code of plug-ins cannot close them.

    A closed stream (``>&-``) is replaced by the null device. Characters that its encoding lacks are written as escapes.
    """
    _occupy_descriptors()
    with streams_lent():
        sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115  (open as long as the process)
        sys.stdout, sys.stderr = _prepared(sys.stdout, _Output), _prepared(sys.stderr, _Messages)
        yield


def _prepared(stream: Any, kind: type[LentStream]) -> Any:
    if stream is None:
        stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  (as above)
    if getattr(stream, "errors", None) in {"strict", "surrogateescape"}:  # the latter in the locale C
        with suppress(AttributeError, ValueError):  # it is not a text stream of Python's, or it is closed
            stream.reconfigure(errors="backslashreplace")
    return kind(stream, stream._name if isinstance(stream, LentStream) else "")


def _occupy_descriptors() -> None:
    """Open the null device for closed standard streams; otherwise the next file would get their number and output."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number


def discard_output() -> None:
    """Redirect standard output to the null device, so that the interpreter does not report the error again at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
