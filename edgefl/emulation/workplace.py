"""A folder for the time of an emulation, and the removal of folders of processes that were killed."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_NAME = re.compile(r"edgefl-emulation-([0-9]+)-.+")


@contextmanager
def workplace() -> Iterator[Path]:
    """A new folder in the system's folder for temporary files; removed at the end.

    Those that killed processes of this user have left behind are removed first.
    """
    place = Path(tempfile.gettempdir())
    for folder in place.iterdir():
        match = _NAME.fullmatch(folder.name)
        if match and not Path("/proc", match[1]).exists():
            with suppress(OSError):
                if folder.lstat().st_uid == os.getuid() and not folder.is_symlink():
                    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"edgefl-emulation-{os.getpid()}-") as name:
        yield Path(name)
