"""Read and write YAML: version 1.2, plain data only.

YAML 1.2 reads ``1e-3`` as a number and ``off`` as a word. The result contains only mappings, lists, texts, numbers,
booleans, dates and null; a file cannot name a Python object.
"""

import copy
import functools
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.composer import ComposerError
from ruamel.yaml.constructor import ConstructorError, DuplicateKeyError
from ruamel.yaml.error import YAMLError

from edgefl.errors import UserError
from edgefl.files import read_text


def read_yaml(path: str | Path) -> Any:
    """The contents of a YAML file as plain Python data."""
    text = read_text(path, what="a YAML file")
    if not text.strip():
        raise UserError("expected YAML, found nothing: the file is empty", file=str(path))
    return parse_yaml(text, file=str(path))


def parse_yaml(text: str, *, file: str | None = None) -> Any:
    """The data in a YAML 1.2 text; ``file`` is its source, for messages.

    >>> parse_yaml("{lr: 1e-3, mode: off, rate: 40 Mbit/s}")
    {'lr': 0.001, 'mode': 'off', 'rate': '40 Mbit/s'}
    """
    if not text.strip():
        raise UserError("expected YAML, found an empty text", file=file)
    try:
        data = _loaded(text)
    except (YAMLError, ValueError) as error:  # ValueError: a date such as 2026-13-45
        raise UserError(_explanation(error), file=file) from None
    if data is None:
        raise UserError("expected YAML with contents, found only comments or null", file=file)
    return copy.deepcopy(data)


@functools.lru_cache(maxsize=8)
def _loaded(text: str) -> Any:
    """Kept, since commands read a run's scenario several times, which was most of their time."""
    # The C parser behind typ="safe" reads YAML 1.1; the pure one reads 1.2.
    return YAML(typ="safe", pure=True).load(text)


def _explanation(error: YAMLError | ValueError) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line = f"line {mark.line + 1}: " if mark is not None else ""
    problem = _first_sentence(getattr(error, "problem", None) or str(error))
    if isinstance(error, DuplicateKeyError):
        return f"{line}a key occurs twice in one mapping: {problem}"
    if isinstance(error, ComposerError) and "single document" in str(error.context):
        return f"{line}expected one YAML document, found a second one"
    if isinstance(error, ConstructorError):
        return f"{line}expected plain data: {problem}"
    context = _first_sentence(getattr(error, "context", None))
    return f"{line}not YAML: {', '.join(filter(None, (context, problem)))}"


def _first_sentence(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


WIDTH = 120
"""Maximum characters of a list or mapping on one line."""


def dump_yaml(data: Any) -> str:
    """YAML 1.2 that :func:`parse_yaml` reads back unchanged; short innermost parts are on one line.

    >>> print(dump_yaml({"name": "a", "local": {"lr": 0.001}, "budgets": None}), end="")
    name: a
    local: {lr: 0.001}
    budgets: null
    """
    writer = YAML(typ="rt", pure=True)
    writer.width = 10**6  # do not wrap texts
    writer.representer.add_representer(
        type(None), lambda representer, _: representer.represent_scalar("tag:yaml.org,2002:null", "null")
    )
    laid_out = _laid_out(data)
    if isinstance(laid_out, CommentedMap | CommentedSeq):
        laid_out.fa.set_block_style()
    text = io.StringIO()
    writer.dump(laid_out, text)
    return text.getvalue()


def _laid_out(data: Any) -> Any:
    if isinstance(data, Mapping):
        mapping = CommentedMap((key, _laid_out(value)) for key, value in data.items())
        return _styled(mapping, mapping.values(), data)
    if isinstance(data, list | tuple):
        sequence = CommentedSeq(_laid_out(value) for value in data)
        return _styled(sequence, sequence, data)
    return data


def _styled(container: CommentedMap | CommentedSeq, values: Any, data: Any) -> CommentedMap | CommentedSeq:
    inner = (value for value in values if isinstance(value, CommentedMap | CommentedSeq))
    if all(value.fa.flow_style() for value in inner) and len(str(data)) <= WIDTH:
        container.fa.set_flow_style()
    else:
        container.fa.set_block_style()
    return container
