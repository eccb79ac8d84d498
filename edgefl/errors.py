"""What edgefl raises, and the nearest valid name for a misspelt one.

Two kinds of error reach a person. A :class:`UserError` says that the input is wrong and how to mend it (exit code 2);
everything else is a fault of edgefl or of a plug-in (exit code 1).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from edgefl.wording import with_article


class EdgeflError(Exception):
    """The base of every error that edgefl raises on purpose."""


class UserError(EdgeflError):
    """The user's input is wrong; the message alone must be enough to mend it.

    Args:
        message: what was found and what was expected, one sentence.
        field: the dotted path of the offending field (``fleet.0.profile``), if there is one.
        file: the file that holds it, as the user named it, if there is one.
    """

    def __init__(self, message: str, *, field: str | None = None, file: str | None = None) -> None:
        self.message = message
        self.field = field
        self.file = file
        super().__init__(str(self))

    def __str__(self) -> str:
        place = ": ".join(part for part in (self.file, self.field) if part)
        return f"{place}: {self.message}" if place else self.message

    def located(self, *, field: str | None = None, file: str | None = None) -> UserError:
        """The same error with the place filled in where it was unknown.

        >>> str(UserError("expected a positive rate").located(field="network.links.5g", file="a.yaml"))
        'a.yaml: network.links.5g: expected a positive rate'
        """
        return UserError(self.message, field=self.field or field, file=self.file or file)


class WrongAnswer(EdgeflError):  # noqa: N818  (what it says of the part)
    """A part of a method returned something that no such part may return; the message says what, and what may be."""


class BrokenPlugIn(UserWarning):
    """A list of all parts leaves out a plug-in that cannot be used."""


def in_words(error: BaseException) -> str:
    """An error in one line: its type and its message, or the message alone of an error that edgefl raised on purpose.

    >>> in_words(KeyError("lost")), in_words(SystemExit()), in_words(UserError("expected  a rate"))
    ("KeyError: 'lost'", 'SystemExit', 'expected a rate')
    """
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001  (the error comes from somebody else's code, and so does its text)
        text = ""
    if isinstance(error, EdgeflError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def one_line(value: object) -> str:
    """A value of somebody else's code as a message shows it, cut to 60 characters.

    >>> one_line([1.5, None]), one_line(None)
    ('[1.5, None]', 'None')
    """
    try:
        text = " ".join(repr(value).split())
    except Exception:  # noqa: BLE001  (as in in_words)
        text = with_article(type(value).__name__)
    return text if len(text) <= 60 else f"{text[:57]}..."


def nearest(name: str, valid: Iterable[str]) -> str:
    """A clause that names the valid choice nearest to ``name``, or lists all of them.

    >>> nearest("fedagv", ["fedavg", "fedprox"])
    "did you mean 'fedavg'?"
    >>> nearest("rl", ["lr", "momentum"])
    "did you mean 'lr'?"
    >>> nearest("?", ["iid", "shards"])
    'expected one of: iid, shards'
    """
    choices = sorted(valid)
    by_folded = {choice.casefold(): choice for choice in choices}
    folded = name.casefold()
    close = difflib.get_close_matches(folded, by_folded, n=1, cutoff=0.6)
    # In a short name two letters that changed places leave less than that in common.
    close = close or [choice for choice in by_folded if sorted(choice) == sorted(folded)]
    if close:
        return f"did you mean '{by_folded[close[0]]}'?"
    return f"expected one of: {', '.join(choices)}"
