"""The exceptions of edgefl, and the nearest valid name for a misspelt one.

Users see two kinds of errors. A :class:`UserError` means that the input is wrong and states how to fix it (exit code
2); every other error is a fault of edgefl or of a plug-in (exit code 1).
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType


class EdgeflError(Exception):
    """The base class of all errors that edgefl raises on purpose."""


class UserError(EdgeflError):
    """The user's input is wrong; the message alone must be enough to fix it.

    Args:
        message: what was found and what was expected, one sentence.
        field: the dotted path of the offending field (``fleet.0.profile``), if there is one.
        file: the file that contains it, as the user named it, if there is one.
    """

    def __init__(self, message: str, *, field: str | None = None, file: str | None = None) -> None:
        self.message = message
        self.field = field
        self.file = file
        super().__init__(str(self))

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, self.field, self.message) if part)

    def located(self, *, field: str | None = None, file: str | None = None) -> UserError:
        """The same error, with field and file filled in if they were not set.

        >>> str(UserError("expected a positive rate").located(field="network.links.5g", file="a.yaml"))
        'a.yaml: network.links.5g: expected a positive rate'
        """
        return UserError(self.message, field=self.field or field, file=self.file or file)


@contextmanager
def locating(*, field: str | None = None, file: str | None = None) -> Iterator[None]:
    """Errors of the user in the block get field and file, if they have none; see :meth:`UserError.located`."""
    try:
        yield
    except UserError as error:
        raise error.located(field=field, file=file) from None


class WrongAnswer(EdgeflError):  # noqa: N818  (describes the part, not the caller)
    """A part of a method returned an invalid value; the message states the value and what is allowed."""


class Note(UserWarning):
    """A remark that a command prints as one line."""


class BrokenPlugIn(Note):
    """A list of all parts omits a plug-in that cannot be used."""


def in_words(error: BaseException) -> str:
    """An error as one line: type and message, or only the message if edgefl raised it on purpose.

    >>> in_words(KeyError("lost")), in_words(SystemExit()), in_words(UserError("expected  a rate"))
    ("KeyError: 'lost'", 'SystemExit', 'expected a rate')
    """
    text = " ".join(str(error).split())
    if isinstance(error, EdgeflError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def first_line(error: BaseException) -> str:
    r"""The first line of a library's message, or the error's type if it has none.

    >>> first_line(ValueError("too small\nmore")), first_line(KeyboardInterrupt())
    ('too small', 'KeyboardInterrupt')
    """
    return str(error).strip().partition("\n")[0] or type(error).__name__


def one_line(value: object) -> str:
    """A value from a plug-in's code for use in a message, cut to 60 characters.

    >>> one_line([1.5, None]), one_line(None)
    ('[1.5, None]', 'None')
    """
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def optional(module: str, extra: str, *, field: str | None = None, file: str | None = None) -> ModuleType:
    """A module of a package that only an extra of edgefl installs; UserError without it.

    >>> optional("missing_package.parts", "parts", field="model")
    Traceback (most recent call last):
    edgefl.errors.UserError: model: missing-package is not installed: ... '.[parts]' in edgefl's folder
    """
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] != package:
            raise
        name = package.replace("_", "-")
        how = f"python -m pip install -e '.[{extra}]' in edgefl's folder"
        raise UserError(f"{name} is not installed: {how}", field=field, file=file) from None


def misspelt(key: str, given: Iterable[object]) -> str:
    """A clause for the message that a key is missing, if one of those that are given probably means it; else empty.

    >>> misspelt("kind", ["kid", "alpha"]), misspelt("kind", ["alpha"])
    ("; 'kid' is unknown: did you mean 'kind'?", '')
    """
    meant = nearest(key, [str(each) for each in given])
    given_name = meant.removeprefix("did you mean ").removesuffix("?")
    return f"; {given_name} is unknown: did you mean '{key}'?" if meant.startswith("did you mean") else ""


def nearest(name: str, valid: Iterable[str]) -> str:
    """A clause that names the valid choice nearest to ``name``, or lists all choices, or the nearest of many.

    >>> nearest("fedagv", ["fedavg", "fedprox"]), nearest("rl", ["lr", "momentum"]), nearest("?", ["iid", "shards"])
    ("did you mean 'fedavg'?", "did you mean 'lr'?", 'expected one of: iid, shards')
    """
    choices = sorted(valid)
    by_folded = {choice.casefold(): choice for choice in choices}
    folded = name.casefold()
    close = difflib.get_close_matches(folded, by_folded, n=1, cutoff=0.6)
    # Two swapped letters in a short name give a similarity below the cutoff.
    close = close or [choice for choice in by_folded if sorted(choice) == sorted(folded)]
    if close:
        return f"did you mean '{by_folded[close[0]]}'?"
    if len(choices) > 35:
        choices = [*(by_folded[each] for each in difflib.get_close_matches(folded, by_folded, n=5, cutoff=0.0)), "…"]
    return f"expected one of: {', '.join(choices)}"
