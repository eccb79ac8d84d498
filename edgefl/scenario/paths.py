"""The fields of a scenario that name files, and the folders to which relative paths refer."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from edgefl.errors import UserError
from edgefl.training.base import ENGINES
from edgefl.user_path import user_path

FILES = (
    "data.root",
    "network.topology.file",
    "network.links.*.file",
    "network.links.*.*.file",
    "fleet.*.profile",
    "fleet.*.availability.file",
)
"""Dotted paths; ``*`` stands for any key or index."""


def anchored(data: Mapping[str, Any], folder: Path, *, only_files: bool = False) -> dict[str, Any]:
    """A copy of a scenario's data in which relative paths start at ``folder``; absolute paths are unchanged.

    >>> anchored({"data": {"root": "images"}, "fleet": [{"profile": "raspberry-pi-5"}]}, Path("/home/me"))
    {'data': {'root': '/home/me/images'}, 'fleet': [{'profile': 'raspberry-pi-5'}]}
    """
    result = copy.deepcopy(dict(data))
    for pattern in FILES:
        if only_files and not pattern.endswith(".file"):
            continue
        _anchor(result, pattern.split("."), folder)
    return result


def found_below(data: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A copy in which paths of files that are still relative, and exist in ``folder``, start at ``folder``."""
    if not folder.is_dir():
        return dict(data)
    return anchored(data, folder, only_files=True)


def what_decides(data: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a resolved scenario's data without values that do not affect results.

    These are the locations of files, and the choice among the engines that agree bit for bit. Profiles are part of a
    resolved scenario. The contents of other files are compared elsewhere.

    >>> what_decides({"data": {"root": "/images", "clients": 8}})
    {'data': {'root': None, 'clients': 8}}
    """
    result = copy.deepcopy(dict(data))
    for pattern in FILES:
        if not pattern.endswith(".profile"):
            _each(result, pattern.split("."), _emptied)
    _each(result, ["training", "engine", "kind"], _emptied_if_alike)
    return result


def _emptied(container: Any, key: Any) -> None:
    container[key] = None


def _emptied_if_alike(container: Any, key: Any) -> None:
    kind = container[key]
    if kind == "auto" or (kind in ENGINES.names() and ENGINES[kind].alike):
        container[key] = None


def _anchor(container: Any, pattern: list[str], folder: Path) -> None:
    def anchor(container: Any, key: Any) -> None:
        if isinstance(container[key], str) and not (pattern[-1] == "profile" and _is_name(container[key])):
            try:
                path = folder / user_path(container[key])
            except UserError:
                return  # the reader of the file refuses it with the name of the field
            # A trace or graph that is not in the scenario's folder is searched in the folder of the data sets.
            if pattern[-1] != "file" or os.path.isfile(path):  # unlike is_file, no error for a name that is too long
                container[key] = str(path)

    _each(container, pattern, anchor)


def _each(container: Any, pattern: list[str], act: Callable[[Any, Any], None]) -> None:
    """Call ``act`` with the container and the key of every existing place that matches a pattern."""
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


def _is_name(profile: str) -> bool:
    """Whether it is the name of a profile for :func:`edgefl.fleet.load_profile`, and not a file."""
    return not (profile.endswith((".yaml", ".yml")) or "/" in profile or "\\" in profile)
