"""A folder to which only one process at a time writes."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import ExitStack, suppress
from pathlib import Path

_TRIES = 100
"""Another process may remove the folder or the lock before this process has the lock; then it tries again."""


class FolderLock:
    """Locks a folder for this process, from its creation to :meth:`release`.

    The lock is on a file in the folder, which only its holder removes. A process that opened the file before its
    removal and gets the lock afterwards would hold a lock that other processes do not see. So a process that gets the
    lock checks that the file and the folder are still those at their paths, and otherwise tries again.

    Args:
        file: the lock's file, in the locked folder.
        make: whether to create the folder and its parents if they are missing.

    Attributes:
        first: whether the file is new.

    Raises:
        BlockingIOError: another process holds the lock.
        OSError: the folder is missing or cannot be written; everything created here is removed again.
    """

    def __init__(self, file: Path, *, make: bool) -> None:
        self._file = file
        self._made: list[Path] = []
        try:
            self._folder, self._lock, self.first = self._taken(make=make)
        except OSError:
            self._remove_made()
            raise

    @property
    def in_place(self) -> bool:
        """Whether the folder is still at its path."""
        return _is_at(self._folder, self._file.parent)

    @property
    def new_place(self) -> Path | None:
        """The new path of a folder that was moved; ``None`` if it was removed, or if the system does not report it."""
        with suppress(OSError):
            found = Path(os.readlink(f"/proc/self/fd/{self._folder}"))
            return found if _is_at(self._folder, found) else None
        return None

    def release(self, *, made: bool = False) -> None:
        """Release the lock; a repeated call has no effect.

        Args:
            made: also remove the folders that were created for it, if they are empty.
        """
        if self._lock < 0:
            return
        self.remove_file()
        if made:
            self._remove_made()
        fcntl.flock(self._lock, fcntl.LOCK_UN)  # a fork of this process may also have the file open
        os.close(self._lock)
        os.close(self._folder)
        self._lock = -1

    def remove_file(self) -> None:
        """Remove the lock's file, unless another process created it again; the lock is held until :meth:`release`."""
        with suppress(OSError):
            if self._is_own_file(self._folder, self._lock):
                os.unlink(self._file.name, dir_fd=self._folder)

    def _taken(self, *, make: bool) -> tuple[int, int, bool]:
        error = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self._file.parent))
        for _ in range(_TRIES):
            if make:
                self._make(self._file.parent)
            try:
                taken = self._attempt()
            except FileNotFoundError as missing:
                error = missing
            else:
                if taken is not None:
                    return taken
        raise error

    def _attempt(self) -> tuple[int, int, bool] | None:
        """The folder and the lock's file, open, and whether the file is new; ``None`` if another process was faster.

        Raises:
            FileNotFoundError: the folder or the file was removed in the meantime.
        """
        with ExitStack() as opened:
            folder = os.open(self._file.parent, os.O_RDONLY | os.O_DIRECTORY)
            opened.callback(os.close, folder)
            lock, first = self._open(folder)
            opened.callback(os.close, lock)
            self._flock(folder, lock, first=first)
            if not (self._is_own_file(folder, lock) and _is_at(folder, self._file.parent)):
                return None
            opened.pop_all()
            return folder, lock, first

    def _flock(self, folder: int, lock: int, *, first: bool) -> None:
        """Lock the file; remove a new one again where the file system has no locks."""
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            if first:
                with suppress(OSError):
                    os.unlink(self._file.name, dir_fd=folder)
            raise

    def _is_own_file(self, folder: int, lock: int) -> bool:
        there = os.stat(self._file.name, dir_fd=folder, follow_symlinks=False)
        return os.path.samestat(there, os.fstat(lock))

    def _open(self, folder: int) -> tuple[int, bool]:
        # Do not follow a link, and do not wait for the other end of a pipe.
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            return os.open(self._file.name, flags | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder), True
        except FileExistsError:
            return os.open(self._file.name, flags, dir_fd=folder), False

    def _make(self, folder: Path) -> None:
        if folder.is_dir():
            return
        self._make(folder.parent)
        with suppress(FileExistsError):
            folder.mkdir()
            self._made.append(folder)

    def _remove_made(self) -> None:
        for folder in reversed(self._made):
            with suppress(OSError):
                folder.rmdir()


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False
