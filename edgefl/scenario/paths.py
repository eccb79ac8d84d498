"""The fields of a scenario that name files, and the folders to which relative paths refer."""

import copy
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

from edgefl import shipped
from edgefl.data.spec import DATA_SETS
from edgefl.errors import UserError
from edgefl.files import user_path
from edgefl.input_file import EXISTS, Named, naming_fields
from edgefl.models.registry import MODELS
from edgefl.registry import Registry, part_of
from edgefl.training.base import ENGINES

Place = Named | Literal["root", "profile"]

FILES: dict[str, Place] = {
    "data.root": "root",
    "network.topology.file": "file",
    "network.links.*.*.file": "traces",
    "data.partition.file": "file",
    "fleet.*.profile": "profile",
    "fleet.*.availability.file": "file",
    "flower.app": "root",
    "methods.*.app": "root",
    "methods.*.python": "code",
}
"""What dotted paths name; ``*`` stands for any key or index. Data sets and models also name files in fields of their
own."""

_SECTIONS: dict[str, Registry[Any]] = {"data": DATA_SETS, "model": MODELS}
"""Sections whose parts may have options that name files."""


def anchored(data: Mapping[str, Any], folder: Path, *, only_files: bool = False) -> dict[str, Any]:
    """A copy of a scenario's data in which relative paths start at ``folder``; absolute paths are unchanged.

    >>> anchored({"data": {"root": "images"}, "fleet": [{"profile": "raspberry-pi-5"}]}, Path("/home/me"))
    {'data': {'root': '/home/me/images'}, 'fleet': [{'profile': 'raspberry-pi-5'}]}
    """
    result = copy.deepcopy(dict(data))
    for pattern, what in (FILES | _named_by_parts(data)).items():
        if not only_files or what in EXISTS:
            _each(result, pattern.split("."), partial(_anchor, folder=folder, what=what))
    return result


def _named_by_parts(data: Mapping[str, Any]) -> dict[str, Named]:
    found: dict[str, Named] = {}
    for section, parts in _SECTIONS.items():
        options = data.get(section)
        if isinstance(options, Mapping):
            with suppress(UserError):  # the section's reader reports it
                naming = naming_fields(part_of(parts, options, "name")[1])
                found |= {f"{section}.{name}": what for name, what in naming.items()}
                # `test: FILE` stands for `test_data: FILE`
                if section == "data" and "test_data" in naming and options.get("test") not in ("whole", "partitioned"):
                    found["data.test"] = naming["test_data"]
    return found


def found_below(data: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A copy in which paths of files that are still relative, and exist in ``folder``, start at ``folder``."""
    if not folder.is_dir():
        return dict(data)
    return anchored(data, folder, only_files=True)


def what_decides(data: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a resolved scenario's data without values that do not affect results.

    These are the locations of files, and the choice among the engines that agree bit for bit. The contents of files
    are compared elsewhere.

    >>> what_decides({"data": {"root": "/images", "clients": 8}})
    {'data': {'root': None, 'clients': 8}}
    """
    result = copy.deepcopy(dict(data))
    for pattern, what in (FILES | _named_by_parts(data)).items():
        if what != "profile":
            _each(result, pattern.split("."), _without_file if what == "code" else _emptied)
    _each(result, ["training", "engine", "kind"], _emptied_if_alike)
    return result


def _emptied(container: Any, key: Any) -> None:
    if isinstance(container[key], str):  # else a part, whose own field names the file
        container[key] = None


def _without_file(container: Any, key: Any) -> None:
    """Keep the name of an object in a Python file."""
    container[key] = container[key].rpartition(":")[2]


def _emptied_if_alike(container: Any, key: Any) -> None:
    kind = container[key]
    if kind == "auto" or (kind in ENGINES.names() and ENGINES[kind].alike):
        container[key] = None


def _anchor(container: Any, key: Any, folder: Path, what: Place) -> None:
    if isinstance(container[key], str) and not _is_name(container[key], what):
        try:
            path = folder / user_path(container[key])
        except UserError:
            return  # the reader of the file refuses it with the name of the field
        if what not in EXISTS or EXISTS[what](path):
            container[key] = str(path)


def _each(container: Any, pattern: list[str], act: Callable[[Any, Any], None]) -> None:
    name, *rest = pattern
    if isinstance(container, dict):
        keys: list[Any] = list(container) if name == "*" else [name] if name in container else []
    elif isinstance(container, list):
        keys = list(range(len(container))) if name == "*" else []
    else:
        return
    for key in keys:
        if rest:
            _each(container[key], rest, act)
        else:
            act(container, key)


def _is_name(text: str, what: Place) -> bool:
    """True for a name of shipped traces, or of a profile."""
    if what == "traces":
        return text in shipped.files("traces")
    return what == "profile" and not (text.endswith((".yaml", ".yml")) or "/" in text or "\\" in text)
