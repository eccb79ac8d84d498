"""A file is written aside and renamed: it is whole or absent, and what a killed process left is replaced."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from edgefl.durable_file import (
    aside,
    durable_file,
    durable_folder,
    output_file,
    remove_unfinished,
    write_durably,
    write_output,
)
from edgefl.errors import UserError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_umask_decides_the_permissions(tmp_path):
    before = os.umask(0o027)
    try:
        write_durably(tmp_path / "file", "text")
        with durable_folder(tmp_path / "new" / "folder") as folder:
            write_durably(folder / "file", "text")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "new" / "folder").stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, call):
    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "file"
    write_durably(path, "old")
    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space left"):
        write_durably(path, "new")
    assert names(tmp_path) == ["file"]
    assert path.read_text() == "old"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_whatever_ends_the_writing_removes_what_was_written(tmp_path, error):
    def write_a_file():
        with durable_file(tmp_path / "file") as file:
            file.write(b"half")
            raise error

    def make_a_folder():
        with durable_folder(tmp_path / "folder") as folder:
            write_durably(folder / "file", "text")
            raise error

    for write in (write_a_file, make_a_folder):
        with pytest.raises(error):
            write()
        assert names(tmp_path) == []


def test_a_file_and_a_folder_have_their_names_once_they_are_whole(tmp_path):
    with durable_file(tmp_path / "file") as file, durable_folder(tmp_path / "folder") as folder:
        file.write(b"whole")
        write_durably(folder / "inner", "text")
        assert not {"file", "folder"} & set(names(tmp_path))
    assert names(tmp_path) == ["file", "folder"]


def test_what_a_killed_process_left_is_replaced(tmp_path):
    aside(tmp_path / "file").write_text("half")
    write_durably(tmp_path / "file", "whole")
    aside(tmp_path / "folder").mkdir()
    write_durably(aside(tmp_path / "folder") / "old", "half")
    with durable_folder(tmp_path / "folder") as folder:
        write_durably(folder / "new", "whole")
    assert names(tmp_path) == ["file", "folder"]
    assert (tmp_path / "file").read_text() == "whole"
    assert names(tmp_path / "folder") == ["new"]


def test_what_a_killed_process_left_can_be_removed_and_nothing_else_is(tmp_path):
    path = tmp_path / "file"
    path.write_text("kept")
    aside(tmp_path / "other").write_text("kept")
    aside(path).write_text("half")
    remove_unfinished(path)
    assert names(tmp_path) == sorted(["file", aside(tmp_path / "other").name])
    with durable_file(path) as file:
        file.write(b"whole")
        remove_unfinished(path)  # a process is writing it
    assert path.read_text() == "whole"


def test_of_two_that_write_at_once_the_first_wins_and_the_other_is_refused(tmp_path):
    with durable_file(tmp_path / "file") as file, durable_folder(tmp_path / "folder") as folder:
        file.write(b"first")
        write_durably(folder / "inner", "first")
        with pytest.raises(OSError, match="another process is writing it"):
            write_durably(tmp_path / "file", "second")
        with pytest.raises(OSError, match="another process is writing it"), durable_folder(tmp_path / "folder"):
            pass
    assert (tmp_path / "file").read_text() == "first"
    assert names(tmp_path / "folder") == ["inner"]


def test_an_output_follows_the_users_link_and_writes_to_the_users_pipe(tmp_path):
    target = tmp_path / "target.html"
    target.write_text("old")
    (tmp_path / "page.html").symlink_to(target)
    write_output(tmp_path / "page.html", "new")
    assert target.read_text() == "new"
    reading, writing = os.pipe()
    write_output(Path(f"/dev/fd/{writing}"), "through")
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == "through"


@pytest.mark.parametrize("place", ["missing/file", "folder", "file/below"])
def test_what_cannot_be_written_is_named_as_the_user_named_it(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=f"^{place}: cannot be written: "):
        write_output(Path(place), "text")
    assert names(tmp_path) == ["file", "folder"]


def test_an_error_of_the_users_output_is_not_hidden(tmp_path):
    with pytest.raises(UserError, match=r"^x: wrong"), output_file(tmp_path / "x"):
        raise UserError("wrong", file="x")
