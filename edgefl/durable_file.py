"""Atomic file writes: a file is written under a temporary name, flushed to the disk, then renamed.

All files of edgefl are written with this module. After a kill, a full disk or a power failure a path has its old
content or its new content, and everything written before it is on the disk as well. An unfinished file is in the same
folder under the name returned by :func:`aside`, locked by the process that writes it. A killed process leaves it there
without a lock; the next write to the path removes it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from edgefl.errors import UserError

_ENDING = ".edgefl-unfinished"
_AT_ONCE = "another process is writing it"
_TRIES = 100
"""Other processes may take the temporary name between two steps; then a process tries again."""
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
"""Errors of file systems that have no locks; processes that write the same file there are noticed if possible."""


def aside(path: Path) -> Path:
    """The temporary path of a file while it is written.

    >>> aside(Path("run/summary.json")).as_posix()
    'run/.summary.json.edgefl-unfinished'
    """
    return path.with_name(f".{path.name}{_ENDING}")


@contextmanager
def durable_file(path: Path) -> Iterator[BinaryIO]:
    """A binary file for writing; it replaces ``path`` when the block ends, and is removed if the block fails.

    A symbolic link at ``path`` is replaced, not followed. Permissions follow the umask, as for any new file.

    Args:
        path: the file, in a folder that exists.

    Raises:
        OSError: it cannot be written, or another process is writing it; ``path`` is unchanged. Only if the folder
            cannot be flushed at the very end, ``path`` has its new content, which a power failure may undo.
    """
    unfinished = aside(path)
    file = os.fdopen(_created(unfinished), "wb")
    made = os.fstat(file.fileno())
    try:
        yield file
        file.flush()
        _flush(file.fileno())
        _rename(unfinished, path, made)
        file.close()
    except BaseException:
        if _is(unfinished, made):
            unfinished.unlink(missing_ok=True)
        with suppress(OSError):
            file.close()
        raise
    flush_folder(path.parent)


def write_durably(path: Path, content: str | bytes) -> None:
    """Write a whole file; text is encoded as UTF-8. See :func:`durable_file`.

    Raises:
        OSError: as for :func:`durable_file`.
    """
    with durable_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def output_file(path: Path) -> Iterator[BinaryIO]:
    """A binary file for writing that the user named (``--output``); written as by :func:`durable_file` if possible.

    A symbolic link is followed. Pipes, devices, and files that standard output or error already write to are written
    directly.

    Raises:
        UserError: it cannot be written.
    """
    try:
        with _stream(path) or durable_file(Path(os.path.realpath(path))) as file:
            yield file
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror or error}", file=str(path)) from None


def write_output(path: Path, content: str | bytes) -> None:
    """Write a file that the user named. See :func:`output_file`.

    Raises:
        UserError: it cannot be written.
    """
    with output_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def durable_folder(path: Path) -> Iterator[Path]:
    """A temporary folder for durable files; it is renamed to ``path`` when the block ends, and removed if that fails.

    Args:
        path: the folder, which must not exist; missing parent folders are made.

    Raises:
        OSError: it cannot be made, or another process is making it.
    """
    make_folder(path.parent)
    unfinished = aside(path)
    _remove_abandoned(unfinished)
    unfinished.mkdir()
    descriptor = os.open(unfinished, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _lock(descriptor, unfinished)
        try:
            yield unfinished
            flush_folder(unfinished)
            unfinished.rename(path)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
    finally:
        os.close(descriptor)
    flush_folder(path.parent)


def make_folder(path: Path, *, parents: bool = True) -> None:
    """Make a folder, unless it exists, and flush it to the disk.

    Args:
        path: the folder.
        parents: also make missing parent folders.

    Raises:
        OSError: it cannot be made.
    """
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(parents=parents, exist_ok=True)
    for each in reversed(missing):
        flush_folder(each.parent)


def flush_folder(folder: Path) -> None:
    """Flush a folder's list of files to the disk, after files were made, renamed or removed.

    Raises:
        OSError: the disk failed.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _flush(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems cannot flush folders
            raise
    finally:
        os.close(descriptor)


def remove_unfinished(path: Path) -> None:
    """Remove what a killed process left of a file that it wrote; a file that a process is writing now stays."""
    with suppress(OSError):
        _remove_abandoned_file(aside(path))


def _created(unfinished: Path) -> int:
    """A new file, open and locked; only the holder of the lock may write, rename and remove it."""
    for _ in range(_TRIES):
        _remove_abandoned_file(unfinished)
        with suppress(FileExistsError):
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
            # Another process may have taken the file for an abandoned one before it was locked.
            if _locked(descriptor) and _is(unfinished, os.fstat(descriptor)):
                return descriptor
            os.close(descriptor)
    raise OSError(errno.EBUSY, _AT_ONCE, str(unfinished))


def _remove_abandoned_file(unfinished: Path) -> None:
    """Remove a file that a killed process left; raises OSError if another process is writing it."""
    try:
        descriptor = os.open(unfinished, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return
    except OSError:  # no file that edgefl made, such as a link
        unfinished.unlink(missing_ok=True)
        return
    try:
        if not _locked(descriptor):
            raise OSError(errno.EBUSY, _AT_ONCE, str(unfinished))
        if _is(unfinished, os.fstat(descriptor)):
            unfinished.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _remove_abandoned(folder: Path) -> None:
    """Remove a folder that a killed process left; raises OSError if another process works in it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    try:
        _lock(descriptor, folder)
        shutil.rmtree(folder)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    if not (_locked(descriptor) and _is(folder, os.fstat(descriptor))):
        raise OSError(errno.EBUSY, _AT_ONCE, str(folder))


def _locked(descriptor: int) -> bool:
    """Lock a file or folder until it is closed; ``False`` if another process has the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def _flush(descriptor: int) -> None:
    """Flush a file to the disk. On macOS ``fsync`` leaves it in the disk's own cache; ``F_FULLFSYNC`` does not."""
    full: int | None = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        with suppress(OSError):  # some file systems do not have it
            fcntl.fcntl(descriptor, full)
            return
    os.fsync(descriptor)


def _rename(unfinished: Path, path: Path, made: os.stat_result) -> None:
    if not _is(unfinished, made):
        raise OSError(errno.EBUSY, _AT_ONCE, str(path))
    os.replace(unfinished, path)


def _is(path: Path, made: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.lstat(), made)
    except OSError:
        return False


def _stream(path: Path) -> BinaryIO | None:
    """A stream to a file that cannot be replaced: not a plain file, or one that a standard stream writes to."""
    try:
        there = path.stat()
    except OSError:
        return None
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # a stream may be closed, or have no file descriptor
            if os.path.samestat(os.fstat(stream.fileno()), there):
                stream.flush()
                return os.fdopen(os.dup(stream.fileno()), "wb")
    return None if stat.S_ISREG(there.st_mode) or stat.S_ISDIR(there.st_mode) else path.open("wb")
