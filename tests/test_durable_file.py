"""A file is whole or absent, has the umask's permissions, and is on the disk before its name is."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from edgefl.durable_file import (
    aside,
    durable_file,
    durable_folder,
    make_folder,
    output_file,
    remove_unfinished,
    write_durably,
    write_output,
)
from edgefl.errors import UserError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002, 0o000])
def test_the_umask_decides_the_permissions(tmp_path, umask):
    before = os.umask(umask)
    try:
        write_durably(tmp_path / "new", "text")
    finally:
        os.umask(before)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o666 & ~umask


def test_the_content_is_flushed_before_the_name_and_the_name_before_the_end(tmp_path, monkeypatch):
    path, done = tmp_path / "file", []
    fsync, replace = os.fsync, os.replace

    def flushed(descriptor):
        done.append(("fsync", Path(os.readlink(f"/proc/self/fd/{descriptor}")).name, path.exists()))
        fsync(descriptor)

    def renamed(source, target):
        done.append(("rename", Path(source).name, Path(source).read_bytes()))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(os, "replace", renamed)
    write_durably(path, "content")
    unfinished = aside(path).name
    assert done == [
        ("fsync", unfinished, False), ("rename", unfinished, b"content"), ("fsync", tmp_path.name, True)
    ]  # fmt: skip


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


def test_a_file_that_may_not_grow_leaves_the_old_one(tmp_path):
    """The real thing: the system refuses to write beyond 10 kB."""
    path = tmp_path / "file"
    write_durably(path, "old")
    code = (
        "import sys, pathlib, signal; from edgefl.durable_file import write_durably; "
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); write_durably(pathlib.Path(sys.argv[1]), bytes(1 << 20))"
    )

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))

    ended = subprocess.run(
        [sys.executable, "-c", code, str(path)], preexec_fn=limited, check=False, capture_output=True, text=True
    )
    assert "OSError: [Errno 27]" in ended.stderr
    assert names(tmp_path) == ["file"]
    assert path.read_text() == "old"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_whatever_ends_the_writing_removes_what_was_written(tmp_path, error):
    def write():
        with durable_file(tmp_path / "file") as file:
            file.write(b"half")
            raise error

    with pytest.raises(error):
        write()
    assert names(tmp_path) == []


def test_what_a_killed_process_left_is_replaced(tmp_path):
    aside(tmp_path / "file").write_text("half")
    write_durably(tmp_path / "file", "whole")
    assert names(tmp_path) == ["file"]
    assert (tmp_path / "file").read_text() == "whole"


def test_what_a_killed_process_left_can_be_removed_and_nothing_else_is(tmp_path):
    path = tmp_path / "file"
    path.write_text("kept")
    aside(tmp_path / "other").write_text("kept")
    aside(path).write_text("half")
    remove_unfinished(path)
    assert names(tmp_path) == sorted(["file", aside(tmp_path / "other").name])
    aside(path).mkdir()
    remove_unfinished(path)
    assert aside(path).is_dir()


def test_what_a_process_is_writing_is_not_removed(tmp_path):
    path = tmp_path / "file"
    with durable_file(path) as file:
        file.write(b"whole")
        remove_unfinished(path)
    assert path.read_text() == "whole"


@pytest.mark.parametrize("where", ["path", "aside"])
def test_a_link_is_replaced_and_never_written_through(tmp_path, where):
    target, path = tmp_path / "target", tmp_path / "file"
    target.write_text("another's")
    (path if where == "path" else aside(path)).symlink_to(target)
    write_durably(path, "own")
    assert target.read_text() == "another's"
    assert path.read_text() == "own"
    assert not path.is_symlink()


def test_of_two_that_write_at_once_the_first_wins_and_the_other_is_told(tmp_path):
    path = tmp_path / "file"
    with durable_file(path) as file:
        file.write(b"first")
        with pytest.raises(OSError, match="another process is writing it"):
            write_durably(path, "second")
    assert names(tmp_path) == ["file"]
    assert path.read_text() == "first"


def test_another_process_between_two_steps_never_has_its_half_file_published(tmp_path, monkeypatch):
    """The other one begins between the last check of the first and its rename."""
    path, replace, others = tmp_path / "file", os.replace, []

    def late(source, target):
        monkeypatch.setattr(os, "replace", replace)
        other = durable_file(path)
        try:
            file = other.__enter__()
        except OSError as error:
            others.append(error)
        else:
            others.append(other)
            file.write(b"ha")
            file.flush()
        replace(source, target)

    monkeypatch.setattr(os, "replace", late)
    write_durably(path, "whole")
    assert path.read_text() == "whole"
    assert isinstance(others[0], OSError)


def test_writers_at_the_same_time_leave_one_whole_file(tmp_path):
    code = (
        "import sys, pathlib; from edgefl.durable_file import write_durably\n"
        "for _ in range(300):\n"
        "    try: write_durably(pathlib.Path(sys.argv[1]), sys.argv[2] * 20_000)\n"
        "    except OSError as error: assert 'another process' in str(error), error\n"
        "    assert len(set(pathlib.Path(sys.argv[1]).read_text())) == 1\n"
    )
    path = tmp_path / "file"
    write_durably(path, "c" * 20_000)
    writers = [subprocess.Popen([sys.executable, "-c", code, str(path), letter]) for letter in "ab"]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert names(tmp_path) == ["file"]
    assert len(path.read_text()) == 20_000


def test_a_folder_that_cannot_be_flushed_at_the_end_is_an_error_with_the_new_content_in_place(tmp_path, monkeypatch):
    fsync = os.fsync

    def failing(descriptor):
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(descriptor)

    write_durably(tmp_path / "file", "old")
    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match="Input/output error"):
        write_durably(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "new"
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("supported", [True, False])
def test_where_the_system_has_a_full_flush_it_is_used(tmp_path, monkeypatch, supported):
    called, flushed, fsync = [], [], os.fsync

    def full(descriptor, command, *rest):
        called.append(command)
        if not supported:
            raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
        return 0

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", full)
    monkeypatch.setattr(os, "fsync", lambda descriptor: (flushed.append(descriptor), fsync(descriptor)))
    write_durably(tmp_path / "file", "content")
    assert called == [51, 51]
    assert len(flushed) == (0 if supported else 2)


def test_a_file_system_without_locks_can_be_written_to(tmp_path, monkeypatch):
    def none(*arguments):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", none)
    write_durably(tmp_path / "file", "content")
    assert (tmp_path / "file").read_text() == "content"


def test_a_folder_is_made_with_its_parents_and_each_is_flushed(tmp_path, monkeypatch):
    flushed, fsync = [], os.fsync

    def noted(descriptor):
        flushed.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).relative_to(tmp_path).as_posix())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    make_folder(tmp_path / "a" / "b" / "c")
    make_folder(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()
    assert flushed == [".", "a", "a/b"]


def test_a_folder_has_its_name_once_it_is_whole(tmp_path):
    before = os.umask(0o027)
    try:
        with durable_folder(tmp_path / "new" / "folder") as folder:
            write_durably(folder / "file", "text")
            assert not (tmp_path / "new" / "folder").exists()
    finally:
        os.umask(before)
    assert names(tmp_path / "new") == ["folder"]
    assert names(tmp_path / "new" / "folder") == ["file"]
    assert (tmp_path / "new" / "folder").stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_folder_that_is_not_finished_goes(tmp_path, error):
    def make():
        with durable_folder(tmp_path / "folder") as folder:
            write_durably(folder / "file", "text")
            raise error

    with pytest.raises(error):
        make()
    assert names(tmp_path) == []


def test_a_folder_that_a_killed_process_left_is_replaced(tmp_path):
    aside(tmp_path / "folder").mkdir()
    write_durably(aside(tmp_path / "folder") / "old", "half")
    with durable_folder(tmp_path / "folder") as folder:
        write_durably(folder / "new", "whole")
    assert names(tmp_path) == ["folder"]
    assert names(tmp_path / "folder") == ["new"]


def test_a_folder_that_another_works_in_is_not_touched(tmp_path):
    with durable_folder(tmp_path / "folder") as folder:
        write_durably(folder / "file", "first")
        with pytest.raises(OSError, match="another process is writing it"), durable_folder(tmp_path / "folder"):
            pass
    assert names(tmp_path / "folder") == ["file"]


def test_a_link_in_a_folders_place_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    write_durably(tmp_path / "elsewhere" / "file", "another's")
    aside(tmp_path / "folder").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"), durable_folder(tmp_path / "folder"):
        pass
    assert names(tmp_path / "elsewhere") == ["file"]


def test_the_users_link_is_followed(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere" / "page.html"
    target.write_text("old")
    (tmp_path / "page.html").symlink_to(target)
    write_output(tmp_path / "page.html", "new")
    assert (tmp_path / "page.html").is_symlink()
    assert target.read_text() == "new"
    assert names(target.parent) == ["page.html"]


def test_the_users_pipe_is_written_to(tmp_path):
    reading, writing = os.pipe()
    write_output(Path(f"/dev/fd/{writing}"), "through")
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == "through"


def test_standard_output_in_a_file_is_not_replaced(tmp_path):
    code = (
        "import pathlib; from edgefl.durable_file import write_output; print('before'); "
        "write_output(pathlib.Path('/dev/stdout'), 'content\\n'); print('after')"
    )
    with (tmp_path / "out.txt").open("w") as out:
        subprocess.run([sys.executable, "-c", code], stdout=out, check=True)
    assert (tmp_path / "out.txt").read_text() == "before\ncontent\nafter\n"
    assert names(tmp_path) == ["out.txt"]


@pytest.mark.parametrize("place", ["missing/file", "folder", "file/below"])
def test_what_cannot_be_written_is_told_by_the_users_name_for_it(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=f"^{place}: cannot be written: "):
        write_output(Path(place), "text")
    assert names(tmp_path) == ["file", "folder"]


def test_an_error_of_the_users_output_is_not_hidden(tmp_path):
    with pytest.raises(UserError, match=r"^x: wrong"), output_file(tmp_path / "x"):
        raise UserError("wrong", file="x")
