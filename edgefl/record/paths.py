"""The paths in a run directory; each is checked before it is returned: it must be a file or a folder, not a link.

A run directory may come from another user. A link in it would redirect reading, writing and removing to another place,
and a named pipe would block a reader permanently. So every file of a run directory is opened by a path from this
module.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgefl.durable_file import aside, flush_folder, make_folder, remove_unfinished
from edgefl.errors import UserError
from edgefl.record import names

if TYPE_CHECKING:
    from edgefl.record.summary import SeedResult

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
        UserError: the path is not a file, or the name is a path out of the folder.
    """
    return _checked(folder, name, "a file")


def own_file_in(folder: Path, name: str) -> Path:
    """The path of a file in a folder that has no second name (a hard link).

    Raises:
        UserError: as for :func:`file_in`, or the file has a second name.
    """
    path = file_in(folder, name)
    with suppress(FileNotFoundError):
        if path.lstat().st_nlink > 1:
            raise UserError(
                "expected a file of this run directory alone, found one with a second name (a hard link), which may "
                "belong to another user; copy the run directory first (cp -r)",
                file=str(path),
            )
    return path


def folder_in(folder: Path, name: str) -> Path:
    """The path of a folder in a folder.

    Raises:
        UserError: the path is not a folder, or the name is a path out of the folder.
    """
    return _checked(folder, name, "a folder")


@dataclass(frozen=True)
class SeedPaths:
    """The files of one method with one seed.

    Attributes:
        folder: the folder that contains them.
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
        """The run's figures at each time it was interrupted."""
        return file_in(self.folder, names.STANDINGS)

    @property
    def emulation(self) -> Path:
        """How an emulated run was measured; a simulated run has no such file."""
        return file_in(self.folder, names.EMULATION)

    @property
    def journal(self) -> Path:
        """The journal while the run is in progress."""
        path, *_ = (file_in(self.folder, name) for name in names.JOURNALS)
        return path

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints while the run is in progress."""
        return folder_in(self.folder, names.CHECKPOINTS)

    def of_finished(self, entry: SeedResult, keep_models: str) -> list[Path]:
        """The files that a finished run has.

        Args:
            entry: its result.
            keep_models: which models are kept, as in a scenario; ``none`` for a run without training.
        """
        files = [self.events, self.rounds]
        if entry.clients is not None:
            files.append(self.clients)
        if not entry.faulted and keep_models != "none":
            files.append(self.final_model)
        if not entry.faulted and keep_models == "clients":
            files.append(self.client_models)
        return files

    def clear(self) -> None:
        """Remove the files that only a run in progress needs, and unfinished ones."""
        shutil.rmtree(self.checkpoints, ignore_errors=True)
        for name in names.SEED_FILES:
            remove_unfinished(self.folder / name)
        for name in names.JOURNALS:
            (self.folder / name).unlink(missing_ok=True)
        if self.folder.is_dir():
            flush_folder(self.folder)

    def remove(self) -> None:
        """Remove everything that edgefl writes here, and the folder unless it contains other files."""
        self.clear()
        _remove(self.folder, names.SEED_FILES)


@dataclass(frozen=True)
class RunPaths:
    """The files of a run directory.

    Attributes:
        root: the run directory as the user gave it; it may itself be a link.
    """

    root: Path

    @property
    def scenario(self) -> Path:
        """The resolved scenario."""
        return file_in(self.root, names.SCENARIO)

    @property
    def summary(self) -> Path:
        """The results of each method and seed."""
        return file_in(self.root, names.SUMMARY)

    @property
    def costs(self) -> Path:
        """Measured step costs."""
        return file_in(self.root, names.COSTS)

    @property
    def sensitivity(self) -> Path:
        """The runs' times under other conditions."""
        return file_in(self.root, names.SENSITIVITY)

    @property
    def picture(self) -> Path:
        """Accuracy over time and bytes."""
        return file_in(self.root, names.PICTURE)

    @property
    def against(self) -> Path:
        """Seconds predicted by another run over those of this one."""
        return file_in(self.root, names.AGAINST)

    @property
    def state(self) -> Path:
        """The finished runs, while others are in progress; if this file exists, the directory can be resumed."""
        return file_in(self.root, names.STATE)

    @property
    def faulted(self) -> Path:
        """The same for a finished run directory in which some runs failed."""
        return file_in(self.root, names.FAULTED)

    @property
    def lock(self) -> Path:
        """The lock of the process that uses the run directory."""
        return file_in(self.root, names.LOCK)

    @property
    def results(self) -> Path:
        """The folder of training results that several methods share, while runs are in progress."""
        return folder_in(self.root, names.RESULTS)

    def results_of(self, seed: int) -> Path:
        """The folder of one seed's results inside that folder."""
        return folder_in(self.results, names.seed_folder(seed))

    @property
    def inputs(self) -> Path:
        """The folder of copies of the run's Python files; they are never executed from here."""
        return folder_in(self.root, names.INPUTS)

    def code(self, field: str) -> Path:
        """The copy of the Python file that a field of the scenario names."""
        return file_in(self.inputs, f"{field}.py")

    def of(self, label: str, seed: int) -> SeedPaths:
        """The files of one method with one seed."""
        return SeedPaths(folder_in(folder_in(self.root, label), names.seed_folder(seed)))

    def make(self, label: str, seed: int) -> SeedPaths:
        """Create the folder of these files and return them; the run directory itself is not created again if moved."""
        paths = self.of(label, seed)
        make_folder(paths.folder.parent, parents=False)
        make_folder(paths.folder, parents=False)
        return paths

    def check_own(self, labels: Iterable[str]) -> None:
        """Check every path that a run in progress reads, writes or removes here.

        Args:
            labels: the methods.

        Raises:
            UserError: a path has the wrong type, or a file has a second name (a hard link), which may belong to another
                user.
        """
        _check_files(self.root, names.FILES)
        _check_files(self.inputs)
        for seed in _seed_folders(self.results):
            _check_files(seed)
        for label in labels:
            for seed in _seed_folders(folder_in(self.root, label)):
                _check_files(seed, names.SEED_FILES)
                _check_files(SeedPaths(seed).checkpoints)

    def clear(self) -> None:
        """Remove unfinished files next to the methods' folders."""
        for name in names.FILES:
            remove_unfinished(self.root / name)

    def remove(self, labels: Iterable[str]) -> None:
        """Remove everything that edgefl writes here for these methods; other files stay.

        Args:
            labels: the methods.
        """
        for label in labels:
            folder = folder_in(self.root, label)
            for seed in _seed_folders(folder):
                SeedPaths(seed).remove()
            with suppress(OSError):
                folder.rmdir()
        for folder in (self.results, self.inputs):
            shutil.rmtree(folder, ignore_errors=True)
        for name in names.FILES:
            if name != names.LOCK:  # removed last, by the process that holds it
                _unlink(self.root, name)


def _checked(folder: Path, name: str, expected: str) -> Path:
    path = folder / name
    if not names.is_plain(name):
        raise UserError(f"expected the name of {expected} in the run directory, found a path", file=str(path))
    found = kind_of(path)
    if found not in (None, expected):
        hint = "; edgefl follows no links inside a run directory" if found == "a symbolic link" else ""
        raise UserError(f"expected {expected}, found {found}{hint}", file=str(path))
    return path


def kind_of(path: Path) -> str | None:
    """The type of the entry at this path, in words; ``None`` if there is none."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", file=str(path)) from None
    return next((words for holds, words in _KINDS if holds(mode)), "a device")


def _seed_folders(folder: Path) -> list[Path]:
    """The folders of seeds in a folder; empty if the folder does not exist."""
    found = sorted(os.listdir(folder)) if kind_of(folder) is not None else []
    return [folder_in(folder, name) for name in found if name.startswith(names.SEED)]


def _check_files(folder: Path, files: Iterable[str] | None = None) -> None:
    """Check that these entries of a folder, or all of its entries, are files without a second name.

    The unfinished form of a file is checked, too.
    """
    if kind_of(folder) is not None:
        for name in files if files is not None else sorted(os.listdir(folder)):
            own_file_in(folder, name)
            own_file_in(folder, aside(folder / name).name)


def _unlink(folder: Path, name: str) -> None:
    for path in (folder / name, aside(folder / name)):
        with suppress(OSError):
            path.unlink()


def _remove(folder: Path, files: Iterable[str]) -> None:
    for name in files:
        _unlink(folder, name)
    with suppress(OSError):
        folder.rmdir()
