"""Read files that come from elsewhere: plain files only, up to a limit on size.

A named pipe or a device in place of a file would block the reader, or never end.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from edgefl.errors import UserError

STREAMS = ("/dev/stdin", "/dev/fd/")
"""The process's own open files; ``<(command)`` in a shell names one of them."""


def read_plain(path: str | Path, maximum: int, *, what: str = "a file", streams: bool = False) -> bytes:
    """The contents of a plain file.

    Args:
        path: the file.
        maximum: its largest size in bytes.
        what: what is expected, for messages ("a YAML file").
        streams: accept a pipe that the process was started with (``/dev/stdin``, ``<(command)``).

    Raises:
        UserError: there is no such file, it is not a plain file or too large, or it cannot be read.
    """
    name = str(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            mode = os.fstat(descriptor).st_mode
            if stat.S_ISFIFO(mode) and streams and name.startswith(STREAMS):
                os.set_blocking(descriptor, True)
            elif not stat.S_ISREG(mode):
                raise UserError(f"expected {what}, found {kind_of_mode(mode)}", file=name)
            # The size is checked before the file is read; a file may also grow meanwhile.
            large = os.fstat(descriptor).st_size > maximum
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                content = b"" if large else file.read(maximum + 1)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise UserError("no such file", file=name) from None
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", file=name) from None
    except ValueError:  # a null character in the name
        raise UserError("cannot be read: not a valid file name", file=name) from None
    if large or len(content) > maximum:
        raise UserError(f"expected {what} of at most {_size(maximum)}, found a larger one", file=name)
    return content


def read_plain_text(path: str | Path, maximum: int, *, what: str = "a file", streams: bool = False) -> str:
    """The same as text; a byte-order mark is removed.

    Raises:
        UserError: as for :func:`read_plain`, or it is not UTF-8.
    """
    raw = read_plain(path, maximum, what=what, streams=streams)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        message = f"expected text in UTF-8, found the byte 0x{raw[error.start]:02x} in line {line}"
        raise UserError(message, file=str(path)) from None


def kind_of_mode(mode: int) -> str:
    """What is at a path, in words, from the mode that ``stat`` returns."""
    if stat.S_ISDIR(mode):
        return "a folder"
    if stat.S_ISREG(mode):
        return "a file"
    return "a named pipe" if stat.S_ISFIFO(mode) else "a device"


def _size(bytes: int) -> str:
    return f"{bytes // 2**20} MiB" if bytes >= 2**20 else f"{bytes // 2**10} KiB"
