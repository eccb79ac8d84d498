"""Read YAML files: version 1.2, plain data only, with limits on size.

YAML 1.2 reads ``1e-3`` as a number and ``off`` as a word. The result contains only mappings, lists, texts, numbers,
booleans, dates and null. A file cannot name a Python object, and nested aliases cannot expand it beyond the limits.
"""

from __future__ import annotations

import copy
import functools
import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer, ComposerError
from ruamel.yaml.constructor import ConstructorError, DuplicateKeyError, SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, ScalarEvent
from ruamel.yaml.nodes import Node
from ruamel.yaml.reader import ReaderError

from edgefl import limits
from edgefl.errors import UserError
from edgefl.plain_file import read_plain_text


def read_yaml(path: str | Path) -> Any:
    """The contents of a YAML file as plain Python data.

    Raises:
        UserError: the file does not exist, is a folder, too large, not UTF-8, not YAML (with the line), or empty.
    """
    text = read_plain_text(path, limits.YAML_BYTES, what="a YAML file", streams=True)
    if not text.strip():
        raise UserError("expected YAML, found nothing: the file is empty", file=str(path))
    return parse_yaml(text, file=str(path))


def parse_yaml(text: str, *, file: str | None = None) -> Any:
    """The data in a YAML text.

    Args:
        text: one YAML 1.2 document.
        file: the source of the text, for messages.

    Raises:
        UserError: the text is empty, is not YAML, contains more than one document, or exceeds the limits.

    >>> parse_yaml("{lr: 1e-3, mode: off, rate: 40 Mbit/s}")
    {'lr': 0.001, 'mode': 'off', 'rate': '40 Mbit/s'}
    """
    if not text.strip():
        raise UserError("expected YAML, found an empty text", file=file)
    try:
        data = _loaded(text)
    except UserError as error:
        raise error.located(file=file) from None
    except (YAMLError, ValueError) as error:  # ValueError: a date such as 2026-13-45
        raise UserError(_explanation(error), file=file) from None
    if data is None:
        raise UserError("expected YAML with contents, found only comments or null", file=file)
    return copy.deepcopy(data)


@functools.lru_cache(maxsize=8)
def _loaded(text: str) -> Any:
    """The data in a text. Kept, since commands read a run's scenario several times, which was most of their time."""
    # The C parser behind typ="safe" reads YAML 1.1; the pure one reads 1.2.
    reader = YAML(typ="safe", pure=True)
    reader.Composer, reader.Constructor = _LimitedComposer, _LimitedConstructor
    return reader.load(text)


class _LimitedConstructor(SafeConstructor):
    """Refuses whole numbers beyond the range of a float: Python needs quadratic time to print them, or refuses to."""

    def construct_yaml_int(self, node: Any) -> Any:
        """A whole number."""
        number = super().construct_yaml_int(node)
        if isinstance(number, int) and number.bit_length() > sys.float_info.max_exp:
            line = node.start_mark.line + 1
            raise UserError(f"line {line}: expected a number within the range of a float, found a larger one")
        return number


_LimitedConstructor.add_constructor("tag:yaml.org,2002:int", _LimitedConstructor.construct_yaml_int)


class _LimitedComposer(Composer):
    """Counts levels and values while the tree is built, and raises an error if there are too many."""

    def __init__(self, loader: Any = None) -> None:
        super().__init__(loader=loader)
        self._depth = 0
        self._nodes = 0
        self._open: list[str] = []
        self._sizes: dict[str, int] = {}  # values of each finished anchor, with its aliases expanded

    def compose_node(self, parent: Node | None, index: Any) -> Any:
        """One value of the document with everything inside it."""
        event = self.parser.peek_event()
        line = event.start_mark.line + 1
        anchor: str | None = event.anchor
        if isinstance(event, AliasEvent):
            if anchor in self._open:
                raise UserError(f"line {line}: the alias '*{anchor}' contains itself")
            self._nodes += self._sizes.get(str(anchor), 0)
            self._check(line)
            return super().compose_node(parent, index)
        before = self._nodes
        self._nodes += 1
        levels = int(not isinstance(event, ScalarEvent))
        self._depth += levels
        self._check(line)
        if anchor is not None:
            self._open.append(anchor)
            self.anchors.pop(anchor, None)  # an anchor may be used again; the composer would warn
        node = super().compose_node(parent, index)
        if anchor is not None:
            self._open.remove(anchor)
            self._sizes[anchor] = self._nodes - before
        self._depth -= levels
        return node

    def _check(self, line: int) -> None:
        if self._depth > limits.DEPTH:
            raise UserError(
                f"line {line}: expected at most {limits.DEPTH} levels of nested lists and mappings, found more"
            )
        if self._nodes > limits.YAML_VALUES:
            raise UserError(
                f"line {line}: expected at most {limits.YAML_VALUES:,} keys and values (each alias counts as its full "
                "contents), found more"
            )


def _explanation(error: YAMLError | ValueError) -> str:
    """One sentence with the line number, instead of the parser's excerpt."""
    if isinstance(error, DuplicateKeyError):
        return f"{_line(error)}a key occurs twice in one mapping: {_first_sentence(error.problem)}"
    if isinstance(error, ComposerError) and "single document" in str(error.context):
        return f"{_line(error)}expected one YAML document, found a second one"
    if isinstance(error, ConstructorError):
        return f"{_line(error)}expected plain data: {_first_sentence(error.problem)}"
    if isinstance(error, ReaderError):
        character = error.character if isinstance(error.character, int) else ord(error.character)
        return f"not YAML: the character U+{character:04X} is not allowed"
    if isinstance(error, MarkedYAMLError):
        parts = [part for part in (error.context, error.problem) if part]
        return f"{_line(error)}not YAML: {', '.join(_first_sentence(part) for part in parts)}"
    return f"not YAML: {_first_sentence(str(error))}"


def _line(error: MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    return f"line {mark.line + 1}: " if mark is not None else ""


def _first_sentence(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]
