"""The location of the scenarios, device profiles, network traces and the tutorial that are shipped with edgefl."""

from pathlib import Path
from typing import Literal

Kind = Literal["scenarios", "device_profiles", "traces", "docs"]


def folder(kind: Kind) -> Path:
    """The folder of shipped files of one kind, in an installed wheel or in a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "shipped_files" / kind
    return installed if installed.is_dir() else package.parent / kind


def files(kind: Kind) -> dict[str, Path]:
    """Shipped files of one kind by name (the file name without its ending), sorted."""
    root = folder(kind)
    ending = "csv" if kind == "traces" else "yaml"
    return {path.relative_to(root).with_suffix("").as_posix(): path for path in sorted(root.rglob(f"*.{ending}"))}
