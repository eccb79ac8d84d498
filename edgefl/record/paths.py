"""The paths in a run directory, each looked at before it is given: what lies there is a file or a folder, never a link.

A run directory may come from anybody. A link in it would lead what is read, written or removed to another place, and a
named pipe would let a reader wait for ever; so every file of a run directory is opened by a path from here.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from edgefl.durable_file import aside, flush_folder, make_folder
from edgefl.errors import UserError
from edgefl.record import names

_KINDS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISREG, "a file"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
)


def file_in(folder: Path, name: str) -> Path:
    """The path of a file in a folder.

    Raises:
        UserError: something else than a file lies there, or the name leads out of the folder.
    """
    return _looked_at(folder, name, "a file")


def own_file_in(folder: Path, name: str) -> Path:
    """The path of a file in a folder that has no second name (a hard link) elsewhere.

    Raises:
        UserError: as for :func:`file_in`, or the file has one.
    """
    path = file_in(folder, name)
    with suppress(FileNotFoundError):
        if path.lstat().st_nlink > 1:
            raise UserError(
                "expected a file of this run directory alone, found one with a second name (a hard link), which may be "
                "somebody else's; copy the run directory first (cp -r)",
                file=str(path),
            )
    return path


def folder_in(folder: Path, name: str) -> Path:
    """The path of a folder in a folder.

    Raises:
        UserError: something else than a folder lies there, or the name leads out of the folder.
    """
    return _looked_at(folder, name, "a folder")


@dataclass(frozen=True)
class SeedPaths:
    """The files of one method with one seed.

    Attributes:
        folder: where they lie.
    """

    folder: Path

    @property
    def events(self) -> Path:
        """The event log."""
        return file_in(self.folder, names.EVENTS)

    @property
    def rounds(self) -> Path:
        """A row for each round."""
        return file_in(self.folder, names.ROUNDS)

    @property
    def clients(self) -> Path:
        """The final model's accuracy on each client."""
        return file_in(self.folder, names.CLIENTS)

    @property
    def final_model(self) -> Path:
        """The last server model."""
        return file_in(self.folder, names.FINAL_MODEL)

    @property
    def client_models(self) -> Path:
        """The local models of the last round."""
        return file_in(self.folder, names.CLIENT_MODELS)

    @property
    def standings(self) -> Path:
        """What the run stood at whenever it was left."""
        return file_in(self.folder, names.STANDINGS)

    @property
    def journal(self) -> Path:
        """The journal while the run is under way."""
        path, *_ = (file_in(self.folder, name) for name in names.JOURNALS)
        return path

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints while the run is under way."""
        return folder_in(self.folder, names.CHECKPOINTS)

    def clear(self) -> None:
        """Remove what only a run under way needs."""
        shutil.rmtree(self.checkpoints, ignore_errors=True)
        for name in names.JOURNALS:
            (self.folder / name).unlink(missing_ok=True)
        if self.folder.is_dir():
            flush_folder(self.folder)

    def remove(self) -> None:
        """Remove everything that edgefl writes here, and the folder unless something else lies in it."""
        self.clear()
        _remove(self.folder, names.SEED_FILES)


@dataclass(frozen=True)
class RunPaths:
    """The files of a run directory.

    Attributes:
        root: the run directory, as the user named it; it may be a link itself.
    """

    root: Path

    @property
    def scenario(self) -> Path:
        """The resolved scenario."""
        return file_in(self.root, names.SCENARIO)

    @property
    def summary(self) -> Path:
        """What each method and seed came to."""
        return file_in(self.root, names.SUMMARY)

    @property
    def costs(self) -> Path:
        """Measured step costs."""
        return file_in(self.root, names.COSTS)

    @property
    def sensitivity(self) -> Path:
        """The run timed again under other conditions."""
        return file_in(self.root, names.SENSITIVITY)

    @property
    def picture(self) -> Path:
        """Accuracy over time and bytes."""
        return file_in(self.root, names.PICTURE)

    @property
    def state(self) -> Path:
        """What is finished while runs are under way; where it lies, there is something to resume."""
        return file_in(self.root, names.STATE)

    @property
    def faulted(self) -> Path:
        """The same of a finished run directory in which runs ended by a fault."""
        return file_in(self.root, names.FAULTED)

    @property
    def lock(self) -> Path:
        """Held by the process that works here."""
        return file_in(self.root, names.LOCK)

    @property
    def results(self) -> Path:
        """The folder of training results that several methods share, while runs are under way."""
        return folder_in(self.root, names.RESULTS)

    def results_of(self, seed: int) -> Path:
        """The folder of a seed's results, in that folder."""
        return folder_in(self.results, names.seed_folder(seed))

    def of(self, label: str, seed: int) -> SeedPaths:
        """The files of one method with one seed."""
        return SeedPaths(folder_in(folder_in(self.root, label), names.seed_folder(seed)))

    def make(self, label: str, seed: int) -> SeedPaths:
        """The same, with their folder made; not the run directory itself, so that one which was moved stays away."""
        paths = self.of(label, seed)
        make_folder(paths.folder.parent, parents=False)
        make_folder(paths.folder, parents=False)
        return paths

    def check_own(self, labels: Iterable[str]) -> None:
        """Look at everything that a run under way reads, writes or removes here.

        Args:
            labels: the methods.

        Raises:
            UserError: something else lies in the place of a file or a folder, or a file has a second name (a hard
                link), which may belong to somebody else.
        """
        _check_files(self.root, names.FILES)
        for seed in _seed_folders(self.results):
            _check_files(seed)
        for label in labels:
            for seed in _seed_folders(folder_in(self.root, label)):
                _check_files(seed, names.SEED_FILES)
                _check_files(SeedPaths(seed).checkpoints)

    def remove(self, labels: Iterable[str]) -> None:
        """Remove everything that edgefl writes here for these methods; what else lies here stays.

        Args:
            labels: the methods.
        """
        for label in labels:
            folder = folder_in(self.root, label)
            for seed in _seed_folders(folder):
                SeedPaths(seed).remove()
            with suppress(OSError):
                folder.rmdir()
        shutil.rmtree(self.results, ignore_errors=True)
        for name in names.FILES:
            if name != names.LOCK:  # the last to go, by the process that holds it
                _unlink(self.root, name)


def _looked_at(folder: Path, name: str, expected: str) -> Path:
    path = folder / name
    if not names.is_plain(name):
        raise UserError(f"expected the name of {expected} in the run directory, found a path", file=str(path))
    found = _kind(path)
    if found not in (None, expected):
        hint = "; edgefl follows no links inside a run directory" if found == "a symbolic link" else ""
        raise UserError(f"expected {expected}, found {found}{hint}", file=str(path))
    return path


def _kind(path: Path) -> str | None:
    """What lies there, in words; ``None`` where nothing does."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", file=str(path)) from None
    return next((words for holds, words in _KINDS if holds(mode)), "a device")


def _seed_folders(folder: Path) -> list[Path]:
    """The folders of seeds in a folder, if that is there."""
    found = sorted(os.listdir(folder)) if _kind(folder) is not None else []
    return [folder_in(folder, name) for name in found if name.startswith(names.SEED)]


def _check_files(folder: Path, files: Iterable[str] | None = None) -> None:
    """Make sure that these entries of a folder, or all that are there, are files of its own."""
    if _kind(folder) is not None:
        for name in files if files is not None else sorted(os.listdir(folder)):
            own_file_in(folder, name)


def _unlink(folder: Path, name: str) -> None:
    for path in (folder / name, aside(folder / name)):
        with suppress(OSError):
            path.unlink()


def _remove(folder: Path, files: Iterable[str]) -> None:
    for name in files:
        _unlink(folder, name)
    with suppress(OSError):
        folder.rmdir()
