"""Write plain data as readable YAML."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq

WIDTH = 120
"""Maximum characters of a list or mapping on one line."""


def dump_yaml(data: Any) -> str:
    """YAML 1.2 that :func:`edgefl.yaml_file.parse_yaml` reads back unchanged; short innermost parts are on one line.

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
    """The same data, with each list and mapping marked for one line or several."""
    if isinstance(data, Mapping):
        mapping = CommentedMap((key, _laid_out(value)) for key, value in data.items())
        return _styled(mapping, mapping.values(), data)
    if isinstance(data, list | tuple):
        sequence = CommentedSeq(_laid_out(value) for value in data)
        return _styled(sequence, sequence, data)
    return data


def _styled(container: CommentedMap | CommentedSeq, values: Any, data: Any) -> CommentedMap | CommentedSeq:
    flat = not any(isinstance(value, CommentedMap | CommentedSeq) and not _on_one_line(value) for value in values)
    if flat and len(str(data)) <= WIDTH:
        container.fa.set_flow_style()
    else:
        container.fa.set_block_style()
    return container


def _on_one_line(container: CommentedMap | CommentedSeq) -> bool:
    return bool(container.fa.flow_style())
