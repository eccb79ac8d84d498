"""Files that a command writes to a path given by the user (``--output``, ``--html``, ``--png``).

An output is never a file of a run directory or a sweep, and never has the extension of a scenario, a table or a model,
which commands read: a mistyped option must not destroy a result or an input.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import BinaryIO

from edgefl.errors import UserError
from edgefl.files import user_path, writing_output
from edgefl.record import names

INPUT_ENDINGS = (".yaml", ".yml", ".parquet", ".safetensors", ".arrow")
"""Extensions of files that commands read and that reports never have."""
_IN_A_RUN = frozenset((*names.OWN, *names.SEED_FILES, *names.SEED_FOLDERS))


def output_path(name: str | PathLike[str]) -> Path:
    """Return the path of an output after checking it."""
    path = user_path(name)
    if path.is_dir():
        raise UserError("expected a new or a plain file for the output, found a folder", file=str(path))
    if path.suffix.lower() in INPUT_ENDINGS:
        raise UserError(
            f"expected another ending: files that end in {path.suffix} are inputs, and no output replaces one",
            file=str(path),
        )
    if not path.parent.is_dir():
        raise UserError("cannot be written: its folder does not exist", file=str(path))
    owner = _owner(path)
    if owner is not None:
        raise UserError(f"expected another name: edgefl keeps this file itself in {owner}", file=str(path))
    return path


def new_output_path(name: str | PathLike[str]) -> Path:
    """Return the path of a file that a command creates and later commands read, such as a device profile."""
    path = user_path(name)
    if path.exists():
        raise UserError("the file exists already; choose another name", file=str(path))
    if not path.parent.is_dir():
        raise UserError("its folder does not exist", file=str(path))
    return path


@contextmanager
def output_file(path: Path) -> Iterator[BinaryIO]:
    """A binary file for an output; it replaces ``path`` when the block ends."""
    with writing_output(output_path(path)) as file:
        yield file


def write_output(path: Path, content: str | bytes) -> None:
    """Write an output as a whole. See :func:`output_file`."""
    with output_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def _owner(path: Path) -> Path | None:
    """The run directory or sweep to which a file of this path belongs, if there is one."""
    real = path.resolve()
    for folder in real.parents:
        below = {part.casefold() for part in real.relative_to(folder).parts}
        states = (names.SUMMARY, names.STATE, names.FAULTED)
        is_run = (folder / names.SCENARIO).exists() and any((folder / name).exists() for name in states)
        if (below & _IN_A_RUN and is_run) or (below & names.IN_A_SWEEP and (folder / names.SWEEP).exists()):
            return folder
    return None
