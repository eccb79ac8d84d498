"""The places of a scenario that name files, and what their relative paths are relative to."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
    """A copy of a scenario's data in which relative paths start at ``folder``; absolute ones stay.

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
    """A copy in which the files that are still relative, and are there below ``folder``, start at it."""
    if not folder.is_dir():
        return dict(data)
    return anchored(data, folder, only_files=True)


def _anchor(container: Any, pattern: list[str], folder: Path) -> None:
    name, *rest = pattern
    if isinstance(container, dict):
        keys: list[Any] = list(container) if name == "*" else [name] if name in container else []
    elif isinstance(container, list):
        keys = list(range(len(container))) if name == "*" else []
    else:
        return
    for key in keys:
        if rest:
            _anchor(container[key], rest, folder)
        elif isinstance(container[key], str) and not (name == "profile" and _is_name(container[key])):
            path = folder / Path(container[key]).expanduser()
            # A trace or a graph that is not beside the scenario is looked for among the data sets.
            if name != "file" or path.is_file():
                container[key] = str(path)


def _is_name(profile: str) -> bool:
    """Whether it names a profile, as :func:`edgefl.fleet.load_profile` sees it, rather than a file."""
    return not (profile.endswith((".yaml", ".yml")) or "/" in profile or "\\" in profile)
