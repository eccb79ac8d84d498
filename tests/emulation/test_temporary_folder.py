from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import pytest

from edgefl.emulation.emulate import temporary_folder


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """The folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_folder_is_removed_at_the_end_also_by_an_error(place):
    def failing() -> None:
        with temporary_folder() as folder:
            (folder / "file").touch()
            raise KeyError

    with pytest.raises(KeyError):
        failing()
    assert list(place.iterdir()) == []


def test_what_a_dead_process_left_is_removed_and_nothing_else(place):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = place / f"edgefl-emulation-{dead.pid}-abc"
    alive = place / f"edgefl-emulation-{os.getppid()}-abc"
    other = place / "edgefl-emulation-notes"
    for folder in (left, alive, other):
        (folder / "inner").mkdir(parents=True)
    with temporary_folder():
        pass
    assert not left.exists()
    assert (alive / "inner").exists()
    assert (other / "inner").exists()
