"""The measuring package as one file that Python runs on a device without edgefl."""

from __future__ import annotations

import tempfile
import zipapp
from importlib.resources import files
from pathlib import Path

PACKAGE = "measure_device"


def write_archive(output: Path) -> None:
    """Pack the package with the standard library's ``zipapp``; ``python OUTPUT`` then runs it."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / PACKAGE
        package.mkdir()
        for module in (files(__package__) / PACKAGE).iterdir():
            if module.name.endswith(".py"):
                (package / module.name).write_bytes(module.read_bytes())
        zipapp.create_archive(folder, output, interpreter="/usr/bin/env python3", main=f"{PACKAGE}.main:run")
