"""Runs that end in the middle: killed at a system call, or with the power of the machine.

Both happen in a child process that counts what it asks of the system: files that are opened to be written, made,
renamed, removed and flushed, and statements of SQLite. All of edgefl's files are written by Python's own calls (see
``tests/test_all_files_are_durable.py``), so nothing goes uncounted but what SQLite does within a statement.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import stat
import sys
from collections.abc import Callable
from pathlib import Path

from edgefl.record import names

AUDITED = {"os.rename", "os.remove", "os.mkdir", "os.rmdir"}
CUT_OFF = 77
"""Exit code of a child whose power was cut."""


def place_of(event: str, arguments: tuple[object, ...]) -> str:
    """The path that a call concerns; those of ``shutil.rmtree`` are relative to an open folder."""
    path, relative_to = str(arguments[0]), arguments[-1]
    if event in {"os.remove", "os.rmdir"} and isinstance(relative_to, int) and relative_to >= 0:
        return f"{os.readlink(f'/proc/self/fd/{relative_to}')}/{path}"
    return path


class Calls:
    """Counts a process's calls, and does something before one of them.

    Args:
        folder: only what concerns files below it counts.
        act: called with the number of each call, from 0, and its kind, before it takes place.
    """

    def __init__(self, folder: Path, act: Callable[[int, str], None]) -> None:
        self._folder = folder
        self._act = act
        self.kinds: list[str] = []

    def count(self, kind: str) -> None:
        self.kinds.append(kind)
        self._act(len(self.kinds) - 1, kind)

    def watch(self, disk: Disk | None = None) -> None:
        """Begin to count; for good, since audit hooks stay."""
        counting, below = [True], str(self._folder)

        def audited(event: str, arguments: tuple[object, ...]) -> None:
            if not counting[0] or event not in {*AUDITED, "open"} or not place_of(event, arguments).startswith(below):
                return
            if event == "open":
                flags = arguments[2]
                if not isinstance(flags, int) or not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                    return
            counting[0] = False  # what happens now is not the run's doing
            try:
                self.count(event)
            finally:
                counting[0] = True

        fsync = os.fsync

        def flushed(descriptor: int) -> None:
            self.count("flush")
            fsync(descriptor)
            if disk is not None:
                disk.flushed(descriptor)

        calls = self

        class Connection(sqlite3.Connection):
            def execute(self, statement, *arguments):
                calls.count("sqlite")
                found = super().execute(statement, *arguments)
                # In SQLite's write-ahead mode nothing else is flushed, but for what is under FULL.
                if disk is not None and ("journal_mode=WAL" in statement or "INTO checkpoints" in statement):
                    disk.database_flushed()
                return found

            def executescript(self, script):
                calls.count("sqlite")
                return super().executescript(script)

            def __exit__(self, *error):
                calls.count("sqlite")
                return super().__exit__(*error)

            def close(self):
                calls.count("sqlite")
                super().close()
                if disk is not None:
                    disk.database_flushed()

        connect = sqlite3.connect
        os.fsync = flushed
        sqlite3.connect = lambda *arguments, **options: connect(*arguments, factory=Connection, **options)
        sys.addaudithook(audited)


class Disk:
    """What a disk is sure to hold of a folder: the contents and the entries that were flushed.

    Args:
        root: the folder that everything is below; it is on the disk itself.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._contents: dict[int, bytes] = {}
        self._entries: dict[int, dict[str, int]] = {}
        self._held: dict[int, int] = {}  # an inode that is held open is not used again

    def flushed(self, descriptor: int) -> None:
        """A file or a folder was flushed."""
        there = os.fstat(descriptor)
        self._hold(f"/proc/self/fd/{descriptor}", there.st_ino)
        if stat.S_ISDIR(there.st_mode):
            self._note_entries(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        else:
            self._contents[there.st_ino] = Path(f"/proc/self/fd/{descriptor}").read_bytes()

    def database_flushed(self) -> None:
        """SQLite flushed its files, and its folder when it made one of them."""
        for path in self._root.rglob("journal.sqlite*"):
            self._contents[path.stat().st_ino] = path.read_bytes()
            self._hold(path, path.stat().st_ino)
            known = self._entries.setdefault(path.parent.stat().st_ino, {})
            known[path.name] = path.stat().st_ino

    def _note_entries(self, folder: Path) -> None:
        entries = {path.name: path.lstat().st_ino for path in folder.iterdir()}
        for name, inode in entries.items():
            self._hold(folder / name, inode)
        self._entries[folder.stat().st_ino] = entries

    def _hold(self, path: Path | str, inode: int) -> None:
        if inode not in self._held:
            self._held[inode] = os.open(path, os.O_PATH)

    def after_the_loss(self, into: Path, luck: Callable[[], bool]) -> None:
        """Build what is found when the power is back.

        Args:
            into: a new folder.
            luck: asked for each entry that was made, renamed or removed and not flushed: whether that reached the disk.
        """
        self._build(self._root, self._root.stat().st_ino, into, luck)

    def _build(self, folder: Path | None, inode: int, into: Path, luck: Callable[[], bool]) -> None:
        into.mkdir()
        then = self._entries.get(inode, {})
        now = {} if folder is None else {path.name: path.lstat().st_ino for path in sorted(folder.iterdir())}
        for name in sorted({*then, *now}):
            place = then.get(name)
            if place != now.get(name) and luck():
                place = now.get(name)
            if place is None:
                continue
            current = folder / name if folder is not None and now.get(name) == place else None
            if self._is_folder(place, current):
                self._build(current, place, into / name, luck)
            else:
                (into / name).write_bytes(self._contents.get(place, b""))

    def _is_folder(self, inode: int, path: Path | None) -> bool:
        there = os.fstat(self._held[inode]) if inode in self._held else path.lstat()
        return stat.S_ISDIR(there.st_mode)


def kill_at(folder: Path, number: int) -> None:
    """This process is killed before its call of this number."""

    def act(count: int, kind: str) -> None:
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)

    Calls(folder, act).watch()


def kill_before_results_are_removed(folder: Path, number: int) -> None:
    """This process is killed before its removal of the shared results of training of this number, from 0."""
    removed, rmtree = [], shutil.rmtree

    def counted(path: Path, **options: bool) -> None:
        if Path(path).name == names.RESULTS:
            if len(removed) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            removed.append(path)
        rmtree(path, **options)

    shutil.rmtree = counted


def cut_off_at(folder: Path, number: int, chance: float, into: Path) -> None:
    """The power goes before this process's call of this number; what is left of ``folder`` is found in ``into``.

    Args:
        folder: holds the run directory; on the disk itself.
        number: of the call.
        chance: that a change to a folder reached the disk without being flushed.
        into: a new folder.
    """
    disk, rng = Disk(folder), random.Random(number)

    def act(count: int, kind: str) -> None:
        if count == number:
            disk.after_the_loss(into, lambda: rng.random() < chance)
            os._exit(CUT_OFF)

    Calls(folder, act).watch(disk)


def note_calls(folder: Path, into: Path) -> None:
    """Write down the kinds of all calls of this process, in order."""
    noted = into.open("w", encoding="utf-8", buffering=1)
    Calls(folder, lambda _, kind: print(kind, file=noted)).watch()
