"""Read JSON that comes from elsewhere: plain files in UTF-8, with limits on size, depth and numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from edgefl import limits
from edgefl.errors import UserError
from edgefl.plain_file import read_plain_text


def read_json(path: str | Path, *, maximum: int = limits.JSON_BYTES, missing: bool = False) -> Any:
    """The contents of a JSON file.

    Args:
        path: the file.
        maximum: its largest size in bytes.
        missing: read ``NaN`` and ``Infinity`` as null instead of refusing them.

    Raises:
        UserError: it is not a plain file, too large, not UTF-8, or not JSON within the limits; the message names the
            file, and the line if it is known.
    """
    return parse_json(read_plain_text(path, maximum, what="a JSON file"), file=str(path), missing=missing)


def parse_json(text: str | bytes, *, file: str | None = None, missing: bool = False) -> Any:
    """The data in a JSON text.

    Args:
        text: one JSON value; bytes are UTF-8.
        file: the source of the text, for messages.
        missing: see :func:`read_json`.

    Raises:
        UserError: it is not JSON, nests too deep, or contains a number that is not finite or too large.

    >>> parse_json('{"seconds": [1, 2.5, null]}')
    {'seconds': [1, 2.5, None]}
    """
    try:
        content = text if isinstance(text, str) else text.decode()
        data = (_LENIENT if missing else _STRICT).decode(content)
    except _NumberError as error:
        line = content.count("\n", 0, max(content.find(error.literal), 0)) + 1
        raise UserError(f"line {line}: expected {error.expected}, found {_short(error.literal)}", file=file) from None
    except json.JSONDecodeError as error:
        raise UserError(f"not JSON (line {error.lineno}: {error.msg})", file=file) from None
    except UnicodeDecodeError:
        raise UserError("not JSON: expected text in UTF-8", file=file) from None
    except RecursionError:
        raise UserError(_TOO_DEEP, file=file) from None
    _check_depth(data, file)
    return data


class _NumberError(Exception):
    """A number that edgefl does not accept."""

    def __init__(self, literal: str, expected: str) -> None:
        super().__init__(literal, expected)
        self.literal = literal
        self.expected = expected


_TOO_DEEP = f"expected at most {limits.DEPTH} levels of nested lists and mappings, found more"


def _integer(literal: str) -> int:
    # No integer of more digits is converted: Python needs quadratic time, and refuses very long ones.
    if len(literal) > 20 or abs(number := int(literal)) > limits.LARGEST_INTEGER:
        raise _NumberError(literal, "a whole number below 2^63")
    return number


def _float(literal: str) -> float:
    number = float(literal)
    if not math.isfinite(number):
        raise _NumberError(literal, "a number within the range of a float")
    return number


def _refuse(literal: str) -> NoReturn:
    raise _NumberError(literal, "a finite number")


def _null(_literal: str) -> None:
    return None


def _decoder(constant: Callable[[str], None]) -> json.JSONDecoder:
    return json.JSONDecoder(parse_int=_integer, parse_float=_float, parse_constant=constant)


_STRICT, _LENIENT = _decoder(_refuse), _decoder(_null)


def _check_depth(data: Any, file: str | None) -> None:
    level = [data]
    for _ in range(limits.DEPTH):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    if any(isinstance(each, dict | list) for each in level):
        raise UserError(_TOO_DEEP, file=file)


def _short(literal: str) -> str:
    return literal if len(literal) <= 40 else f"one of {len(literal)} digits"
