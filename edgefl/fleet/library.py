"""Find a device profile by the name of a shipped or plugged-in profile, or by the path of a file."""

import re
import warnings
from collections.abc import Mapping
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from edgefl import shipped
from edgefl.errors import BrokenPlugIn, Note, UserError, nearest
from edgefl.files import user_path
from edgefl.fleet.changed_profile import in_mode
from edgefl.fleet.figure import value
from edgefl.fleet.profile import DeviceProfile
from edgefl.registry import PlugIns
from edgefl.validation import as_validator, shown, validated
from edgefl.yaml_file import read_yaml


def _check(plug_in: Any) -> None:
    if not isinstance(plug_in, str | PathLike | Mapping | DeviceProfile):
        raise UserError(f"expected a path or a mapping, found {shown(plug_in)}")


PLUG_INS = PlugIns("device profile", "edgefl.device_profiles", _check)
"""Each is the path of a profile file, or a mapping with the contents of such a file."""


def profile_names() -> list[str]:
    """The names of all shipped and plugged-in profiles, sorted."""
    return sorted({*shipped.files("device_profiles"), *PLUG_INS.names()})


def all_profiles() -> list[DeviceProfile]:
    """All shipped and plugged-in profiles; a broken plug-in is omitted with a :class:`BrokenPlugIn` warning."""
    profiles = []
    for name in profile_names():
        try:
            profiles.append(load_profile(name))
        except UserError as error:
            if name not in PLUG_INS:
                raise
            warnings.warn(str(error), BrokenPlugIn, stacklevel=2)
    return profiles


def load_profile(name_or_path: str | PathLike[str], *, folder: Path | None = None) -> DeviceProfile:
    """The device profile of a name of :func:`profile_names`, or in a YAML file.

    Any text that ends in ``.yaml`` or ``.yml`` or contains a separator is the path of a file; relative paths start at
    ``folder``, or else in the working directory. ``NAME:MODE`` is a device in a power mode, as is ``FILE:MODE``.

    Raises:
        UserError: there is no such profile (the message suggests the nearest name), or the file is not a valid profile.

    >>> load_profile("raspberry-pi-5").kind
    'sbc'
    """
    text = str(name_or_path)
    device, _, mode = text.rpartition(":")
    if isinstance(name_or_path, str) and device and not is_path(mode):
        return in_mode(load_profile(device, folder=folder), mode)
    if not isinstance(name_or_path, str) or is_path(text):
        path = user_path(text)
        return read_profile(path if folder is None else folder / path)
    return _named(text)


def is_path(text: str) -> bool:
    """True if a text names a profile by its file, and perhaps a power mode of it, not by its name."""
    return re.search(r"\.ya?ml(:|$)|[/\\]", text) is not None


@as_validator
def _loaded(value: Any) -> Any:
    if isinstance(value, Mapping) and "profile" in value:
        raise UserError("expected NAME, or NAME:MODE for a power mode, or a whole profile, found an entry of a fleet")
    return load_profile(value) if isinstance(value, str) else value


NamedProfile = Annotated[
    DeviceProfile, BeforeValidator(_loaded), WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object"}]})
]
"""An option that is the name of a profile, the path of one, or a whole profile."""


def read_profile(path: Path) -> DeviceProfile:
    """The profile in a YAML file; a note says which of its rates are doubtful."""
    profile = validated(DeviceProfile, read_yaml(path), file=str(path))
    note_doubtful(profile)
    return profile


FITTED = tuple(f"raspberry-pi-{each}" for each in ("3b-plus", "4", "4-torch1", "4-torch2", "5", "5-torch1"))
"""The boards whose predicted steps were compared with measured ones."""

SEVERAL = 3.0


def note_doubtful(profile: DeviceProfile) -> None:
    """Say in a note which rates of an estimated board are several times those of any fitted one, as in data sheets."""
    if profile.kind != "sbc" or profile.evidence("compute").kind != "estimated" or profile.name in FITTED:
        return
    boards = [_named(name) for name in FITTED]
    for figure in ("fp32_achievable", "memory_bandwidth"):
        best = max(boards, key=lambda board: value(getattr(board.compute, figure)))
        own, most = value(getattr(profile.compute, figure)), value(getattr(best.compute, figure))
        if own > SEVERAL * most:
            times = f"compute.{figure} is {own / most:.3g} times that of {best.name}, the most of any fitted board"
            hint = "training seldom reaches data sheets; `edgefl profile guess` scales a fitted board"
            warnings.warn(f"{profile.name}: {times}: {hint}", Note, stacklevel=1)


@lru_cache
def _named(name: str) -> DeviceProfile:
    files = shipped.files("device_profiles")
    if name not in PLUG_INS:
        if name in files:
            return validated(DeviceProfile, read_yaml(files[name]), file=str(files[name]))
        raise UserError(
            f"unknown device profile '{name}'; {nearest(name, profile_names())} (edgefl profile list shows all; the "
            f"path of a file ends in .yaml or contains a separator)"
        )
    if name in files:
        raise PLUG_INS.clash(name)
    plug_in = PLUG_INS.load(name)
    if isinstance(plug_in, str | PathLike):
        return read_profile(Path(plug_in))
    return validated(DeviceProfile, plug_in, file=f"device profile '{name}' of {PLUG_INS.origin(name)}")
