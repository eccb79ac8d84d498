"""Pack the measuring package into one file that Python can run on a device without edgefl."""

from __future__ import annotations

import os
import tempfile
import zipapp
from importlib.resources import files
from pathlib import Path

from edgefl.durable_file import output_file

PACKAGE = "measure_device"


def write_archive(output: Path) -> None:
    """Pack the package with the standard library's ``zipapp``; ``python OUTPUT`` then runs it."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / PACKAGE
        package.mkdir()
        for module in (files(__package__) / PACKAGE).iterdir():
            if module.name.endswith(".py"):
                (package / module.name).write_bytes(module.read_bytes())
        with output_file(output) as file:
            zipapp.create_archive(folder, file, interpreter="/usr/bin/env python3", main=f"{PACKAGE}.start:run")
            mode = os.fstat(file.fileno()).st_mode
            os.fchmod(file.fileno(), mode | (mode & 0o444) >> 2)  # users who may read it may execute it
