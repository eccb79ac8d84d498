"""Finding a device profile: by the name of a shipped or plugged-in one, or by the path of a file."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from os import PathLike
from pathlib import Path
from typing import Any

from edgefl import shipped
from edgefl.errors import UserError, nearest
from edgefl.fleet.profile import DeviceProfile
from edgefl.validation import validated
from edgefl.yaml_file import read_yaml

ENTRY_POINTS = "edgefl.device_profiles"
"""Entry-point group; each object is the path of a profile file, or a mapping that says what such a file would."""


def profile_names() -> list[str]:
    """Every profile that can be had by name, shipped and plugged in, sorted."""
    return sorted({*shipped.files("device_profiles"), *_plugged_in()})


def load_profile(name_or_path: str | PathLike[str], *, folder: Path | None = None) -> DeviceProfile:
    """A device profile.

    Args:
        name_or_path: a name as :func:`profile_names` lists them, or the path of a YAML file: anything that ends in
            ``.yaml`` or ``.yml`` or contains a separator.
        folder: where relative paths start; the working directory if not given.

    Raises:
        UserError: there is no such profile (with the nearest name), or the file does not hold a valid one.

    >>> load_profile("raspberry-pi-5").kind
    'sbc'
    """
    text = str(name_or_path)
    if not isinstance(name_or_path, str) or text.endswith((".yaml", ".yml")) or "/" in text or "\\" in text:
        path = Path(text).expanduser()
        return read_profile(path if folder is None else folder / path)
    return _named(text)


def read_profile(path: Path) -> DeviceProfile:
    """The profile that a YAML file holds.

    Raises:
        UserError: the file cannot be read or does not hold a valid profile; it names file and field.
    """
    return validated(DeviceProfile, read_yaml(path), file=str(path))


@lru_cache
def _named(name: str) -> DeviceProfile:
    files = shipped.files("device_profiles")
    if name in files:
        return read_profile(files[name])
    plugged_in = _plugged_in()
    if name not in plugged_in:
        raise UserError(
            f"unknown device profile '{name}'; {nearest(name, [*files, *plugged_in])} "
            "(the path of a file ends in .yaml or contains a separator)"
        )
    return _from_plug_in(name, plugged_in[name].load())


def _plugged_in() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def _from_plug_in(name: str, plug_in: Any) -> DeviceProfile:
    if isinstance(plug_in, str | PathLike):
        return read_profile(Path(plug_in))
    if isinstance(plug_in, Mapping | DeviceProfile):
        return validated(DeviceProfile, plug_in, file=f"device profile '{name}' (entry point)")
    raise UserError(f"the entry point '{name}' in {ENTRY_POINTS}: expected a path or a mapping, found {plug_in!r}")
