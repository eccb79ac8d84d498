"""Python files that a scenario names: ``net.py:Net`` is the object ``Net`` of the file ``net.py``.

A file is imported as a submodule of this module. The submodule's name contains the file's path and digest, so it
never equals the name of another module. Another process that unpickles an object of the file imports the file by this
name, and refuses it if its content differs.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Sequence
from hashlib import sha256
from importlib.abc import ExecutionLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from edgefl.errors import UserError, in_words, nearest
from edgefl.files import read_bytes
from edgefl.validation import shown
from edgefl.wording import with_article

_allowed: set[Path] = set()
"""The files that may be executed."""

__path__: list[str] = []
"""Lets Python import submodules of this module, which :class:`_UserFiles` finds."""


def allow(file: Path) -> None:
    """Let objects of a Python file be loaded: the user named it, not somebody who sent a run directory."""
    _allowed.add(file.absolute())


class UserCode(NamedTuple):
    """An object in a Python file; a name with dots is an attribute of another object."""

    file: Path
    name: str

    @classmethod
    def of(cls, reference: str) -> UserCode:
        """The object that a scenario names as ``FILE.py:NAME``; UserError if it is not of this form.

        >>> UserCode.of("models/net.py:Net").name
        'Net'
        """
        file, _, name = reference.rpartition(":")
        if not file.endswith(".py") or not all(part.isidentifier() for part in name.split(".")):
            raise UserError(f"expected FILE.py:NAME, such as net.py:Net, found {shown(reference)}")
        return cls(Path(file), name)

    def digest(self) -> str:
        """The SHA-256 of the file's content, in hexadecimal digits; UserError if it cannot be read."""
        return sha256(read_bytes(self.file, what="a Python file")).hexdigest()

    def allowed(self) -> bool:
        """True if the file may be executed."""
        return self.file.absolute() in _allowed

    def load(self, digest: str | None = None, kind: type | None = None) -> Any:
        """The object; the file is imported at the first call, and its output goes to standard error."""
        if not self.allowed():
            raise UserError("this Python file of a run directory's scenario is not executed", file=str(self.file))
        found = self.digest()
        if digest is not None and found != digest:
            raise UserError(f"expected the content with the SHA-256 {digest}, found {found}", file=str(self.file))
        value: Any = _imported(self.file, found)
        for part in self.name.split("."):
            if not hasattr(value, part):
                raise UserError(f"no object '{self.name}'; {_hint(part, value, kind)}", file=str(self.file))
            value = getattr(value, part)
        if not (callable(value) if kind is None else isinstance(value, kind)):
            expected = "a function or a class" if kind is None else with_article(kind.__name__)
            raise UserError(f"expected '{self.name}' to be {expected}, found {shown(value)}", file=str(self.file))
        return value


def _hint(name: str, owner: Any, kind: type | None) -> str:
    suits = callable if kind is None else lambda value: isinstance(value, kind)
    names = [each for each, value in vars(owner).items() if suits(value) and not each.startswith("_")]
    return nearest(name, names) if names else f"it has no {'function and no class' if kind is None else kind.__name__}"


def _imported(file: Path, digest: str) -> ModuleType:
    place = quote(str(file.absolute()), safe="/").replace(".", "%2E")
    try:
        with contextlib.redirect_stdout(sys.stderr):  # not into a command's output
            return importlib.import_module(f"{__name__}.{place}:{digest}")
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise UserError(_reason(error, file.absolute()), file=str(file)) from error


def _reason(error: BaseException, file: Path) -> str:
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f"line {error.lineno or 1}: not valid Python: {error.msg}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    message = f"this file raised an error when it was imported: {in_words(error)}"
    if lines:
        message = f"line {lines[-1]}: {message}"
    if isinstance(error, ModuleNotFoundError) and error.name:
        neighbour = file.parent / error.name.partition(".")[0]
        if neighbour.is_dir() or neighbour.with_suffix(".py").is_file():
            message += f"; it cannot import '{neighbour.name}' from its own folder: use one file, or install a package"
    return message


class _UserFiles(MetaPathFinder, ExecutionLoader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.rpartition(".")[0] != __name__:
            return None
        spec = ModuleSpec(fullname, self, origin=self.get_filename(fullname))
        spec.has_location = True  # sets __file__
        return spec

    def get_filename(self, fullname: str) -> str:
        return unquote(fullname.removeprefix(f"{__name__}.").rpartition(":")[0])

    def get_source(self, fullname: str) -> str:
        content = read_bytes(self.get_filename(fullname), what="a Python file")
        if sha256(content).hexdigest() != fullname.rpartition(":")[2]:
            raise ImportError(f"'{self.get_filename(fullname)}' has changed since it was first imported")
        return importlib.util.decode_source(content)


sys.meta_path.append(_UserFiles())
