"""The paths in a run directory and of outputs, and what can be done with a run that is not finished."""

import shlex
import shutil
from collections.abc import Iterable
from contextlib import suppress
from os import PathLike
from pathlib import Path

from edgefl.errors import UserError
from edgefl.files import aside, read_json, user_path, writing_output
from edgefl.record import names


class SeedPaths:
    """The files of one method with one seed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events = folder / names.EVENTS
        self.rounds = folder / names.ROUNDS
        self.clients = folder / names.CLIENTS
        self.final_model = folder / names.FINAL_MODEL
        self.client_models = folder / names.CLIENT_MODELS  # the local models of the last round
        self.checkpoint = folder / names.CHECKPOINT  # what a longer run continues from
        self.emulation = folder / names.EMULATION  # how an emulated run was measured; else there is no such file
        # What continues the run while it is in progress.
        self.journal = folder / names.JOURNAL
        self.checkpoints = folder / names.CHECKPOINTS
        self.replies = folder / names.REPLIES

    def clear(self) -> None:
        """Remove what only a run in progress needs, and files that a killed process left unfinished."""
        for name in names.SEED_FOLDERS:
            shutil.rmtree(self.folder / name, ignore_errors=True)
        for name in names.SEED_FILES:
            aside(self.folder / name).unlink(missing_ok=True)
        self.journal.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove everything that edgefl writes here, and the folder unless it contains other files."""
        self.clear()
        for name in names.SEED_FILES:
            (self.folder / name).unlink(missing_ok=True)
        with suppress(OSError):
            self.folder.rmdir()


class RunPaths:
    """The files of a run directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.scenario = root / names.SCENARIO
        self.summary = root / names.SUMMARY
        self.costs = root / names.COSTS
        self.sensitivity = root / names.SENSITIVITY  # the runs' times under other conditions
        self.picture = root / names.PICTURE  # accuracy over time and bytes
        self.against = root / names.AGAINST  # seconds predicted by another run over those of this one
        self.state = root / names.STATE  # the finished runs, while others are in progress: the run can be resumed
        self.faulted = root / names.FAULTED  # the same for a finished run directory in which some runs failed
        self.lock = root / names.LOCK
        self.inputs = root / names.INPUTS  # copies of the run's Python files, which are never executed from here
        self.longer = root / names.LONGER  # the same run with more rounds, until it is finished

    def code(self, field: str) -> Path:
        """The copy of the Python file that a field of the scenario names."""
        return self.inputs / f"{field}.py"

    def of(self, label: str, seed: int) -> SeedPaths:
        return SeedPaths(self.root / label / f"{names.SEED}{seed}")

    def make(self, label: str, seed: int) -> SeedPaths:
        """Create the folder of these files and return them; the run directory itself must exist."""
        paths = self.of(label, seed)
        paths.folder.parent.mkdir(exist_ok=True)
        paths.folder.mkdir(exist_ok=True)
        return paths

    def clear(self) -> None:
        """Remove files next to the methods' folders that a killed process left unfinished."""
        for name in names.FILES:
            aside(self.root / name).unlink(missing_ok=True)

    def remove(self, labels: Iterable[str]) -> None:
        """Remove everything that edgefl writes here for these methods, except the lock; other files stay."""
        for label in labels:
            for seed in sorted((self.root / label).glob(f"{names.SEED}*")):
                SeedPaths(seed).remove()
            with suppress(OSError):
                (self.root / label).rmdir()
        shutil.rmtree(self.inputs, ignore_errors=True)
        self.clear()
        for name in names.FILES:
            if name != names.LOCK:
                (self.root / name).unlink(missing_ok=True)


def is_interrupted(run: Path) -> bool:
    """True if a folder contains a run that was begun and not finished, or one that is to have more rounds."""
    return RunPaths(run).state.is_file() or RunPaths(run).longer.is_dir()


def how_to_continue(run: str | Path) -> str:
    """The command that continues an unfinished run, or one with faults."""
    paths = RunPaths(Path(run))
    with suppress(UserError, LookupError, TypeError):  # of an older build
        if read_json(paths.state if paths.state.exists() else paths.faulted)["choices"]["emulated"]:
            return "start the emulation again in another folder, because measured seconds cannot be resumed"
    whole = paths.root.parent if paths.root.name == names.LONGER else run
    return f"edgefl simulate --resume {shlex.quote(str(whole))}"


INPUT_ENDINGS = (".yaml", ".yml", ".parquet", ".safetensors", ".arrow")
"""Extensions of files that commands read and that reports never have."""
_IN_A_RUN = frozenset((*names.OWN, *names.SEED_FILES, *names.SEED_FOLDERS))


def output_path(name: str | PathLike[str]) -> Path:
    """Return the path of an output after checking it."""
    path = user_path(name)
    if path.is_dir():
        raise UserError("expected a new or a plain file for the output, found a folder", file=str(path))
    if path.suffix.lower() in INPUT_ENDINGS:
        message = f"expected another ending: files that end in {path.suffix} are inputs, and no output replaces one"
        raise UserError(message, file=str(path))
    if not path.parent.is_dir():
        raise UserError("cannot be written: its folder does not exist", file=str(path))
    real = path.resolve()
    for folder in real.parents:
        below = {part.casefold() for part in real.relative_to(folder).parts}
        states = (names.SUMMARY, names.STATE, names.FAULTED)
        is_run = (folder / names.SCENARIO).exists() and any((folder / name).exists() for name in states)
        if (below & _IN_A_RUN and is_run) or (below & names.IN_A_SWEEP and (folder / names.SWEEP).exists()):
            raise UserError(f"expected another name: edgefl keeps this file itself in {folder}", file=str(path))
    return path


def new_output_path(name: str | PathLike[str]) -> Path:
    """Return the path of a file that a command creates and later commands read, such as a device profile."""
    path = user_path(name)
    if path.exists():
        raise UserError("the file exists already; choose another name", file=str(path))
    if not path.parent.is_dir():
        raise UserError("its folder does not exist", file=str(path))
    return path


def write_output(path: Path, content: str | bytes) -> None:
    """Write an output as a whole; it replaces ``path`` when it is complete."""
    with writing_output(output_path(path)) as file:
        file.write(content.encode() if isinstance(content, str) else content)
