"""Files that are whole or absent: written aside, flushed to the disk, then renamed.

Everything that edgefl writes goes through here. After a kill, a full disk or a power failure a path holds its old
content or the new one, and what was written before it is on the disk as well. A file that is under way lies beside its
path under the name of :func:`aside`; a killed process leaves it there, and whoever writes the path next replaces it.
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
_AT_ONCE = "another process writes it at the same time"


def aside(path: Path) -> Path:
    """Where a file is written before it gets its name.

    >>> aside(Path("run/summary.json")).as_posix()
    'run/.summary.json.edgefl-unfinished'
    """
    return path.with_name(f".{path.name}{_ENDING}")


@contextmanager
def durable_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write bytes to; it takes its path's place when the block ends, and is removed if the block fails.

    A symbolic link at ``path`` is replaced, not followed. Permissions are those of any new file: the umask decides.

    Args:
        path: the file, in a folder that exists.

    Raises:
        OSError: it cannot be written, or another process writes it at the same time; ``path`` is as it was.
    """
    unfinished = aside(path)
    unfinished.unlink(missing_ok=True)  # a killed process left it
    file = os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666), "wb")
    made = os.fstat(file.fileno())
    try:
        yield file
        file.flush()
        os.fsync(file.fileno())
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
    """Write a whole file; text becomes UTF-8. See :func:`durable_file`.

    Raises:
        OSError: it cannot be written; ``path`` is as it was.
    """
    with durable_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def output_file(path: Path) -> Iterator[BinaryIO]:
    """A file that the user named (``--output``), to write bytes to; as :func:`durable_file`, unless it cannot be.

    A symbolic link is followed. A pipe, a device, and a file that standard output or error already write to are
    written as they are.

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
    """A folder to write durable files into; it takes its path's place when the block ends, and goes if the block fails.

    Args:
        path: the folder, which is not there, in one that is made where it is missing.

    Raises:
        OSError: it cannot be made, or another process makes it at the same time.
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
    """Make a folder, unless it is there; it is on the disk then.

    Args:
        path: the folder.
        parents: make those above it as well, where they are missing.

    Raises:
        OSError: it cannot be made.
    """
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(parents=parents, exist_ok=True)
    for each in reversed(missing):
        flush_folder(each.parent)


def flush_folder(folder: Path) -> None:
    """Have the disk hold which files a folder has, after files were made, renamed or removed.

    Raises:
        OSError: the disk failed.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems flush no folders
            raise
    finally:
        os.close(descriptor)


def remove_unfinished(folder: Path) -> None:
    """Remove what killed processes left of files under way, in a folder and below it."""
    for path in folder.rglob(f".*{_ENDING}"):
        path.unlink(missing_ok=True)


def _remove_abandoned(folder: Path) -> None:
    """Remove a folder that a killed process left; one that another process works in is refused."""
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
    with suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is(folder, os.fstat(descriptor)):
            return
    raise OSError(errno.EBUSY, _AT_ONCE, str(folder))


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
    """What a path leads to that cannot be replaced: no plain file, or one that a standard stream writes to."""
    try:
        there = path.stat()
    except OSError:
        return None
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # a stream may be closed, or none of the system's
            if os.path.samestat(os.fstat(stream.fileno()), there):
                stream.flush()
                return os.fdopen(os.dup(stream.fileno()), "wb")
    return None if stat.S_ISREG(there.st_mode) or stat.S_ISDIR(there.st_mode) else path.open("wb")
