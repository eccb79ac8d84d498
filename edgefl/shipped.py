"""The location of the scenarios and device profiles that are shipped with edgefl."""

from __future__ import annotations

from pathlib import Path
from typing import Literal


def folder(kind: Literal["scenarios", "device_profiles"]) -> Path:
    """The folder of shipped files of one kind, in an installed wheel or in a checkout.

    >>> folder("scenarios").name
    'scenarios'
    """
    package = Path(__file__).resolve().parent
    installed = package / "shipped_files" / kind
    return installed if installed.is_dir() else package.parent / kind


def files(kind: Literal["scenarios", "device_profiles"]) -> dict[str, Path]:
    """Shipped files of one kind by name (the file name without its ending), sorted."""
    root = folder(kind)
    return {path.relative_to(root).with_suffix("").as_posix(): path for path in sorted(root.rglob("*.yaml"))}
