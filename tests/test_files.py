"""Files are read with one sentence for each problem, and written as a whole or not at all."""

import json

import pytest

from edgefl.errors import UserError
from edgefl.files import aside, parse_json, read_json, user_path, write_file, writing, writing_folder, writing_output


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        (b'{"a": 1,\n]', r"not JSON \(line 2: "),
        (b"\xff", "expected text in UTF-8, found the byte 0xff in line 1"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_sentence_with_its_name(tmp_path, content, message):
    if content is not None:
        (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(UserError, match=rf"a\.json: {message}"):
        read_json(tmp_path / "a.json")


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(UserError, match="expected a JSON file, found a folder"):
        read_json(tmp_path)


def test_json_is_read_back(tmp_path):
    data = {"seconds": [1, 2.5, None, "ü"]}
    write_file(tmp_path / "a.json", json.dumps(data))
    assert read_json(tmp_path / "a.json") == parse_json(json.dumps(data).encode()) == data


def test_a_failed_write_leaves_the_old_content(tmp_path):
    path = tmp_path / "file"
    write_file(path, "old")
    with pytest.raises(ZeroDivisionError), writing(path) as file:
        file.write(bytes(1 // 0))
    assert path.read_text() == "old"
    write_file(aside(path), "left by a killed process")
    write_file(path, "new")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "new"


def test_a_folder_gets_its_name_when_it_is_complete(tmp_path):
    write_file(tmp_path / "left", "")
    aside(tmp_path / "new").mkdir()
    write_file(aside(tmp_path / "new") / "old", "left by a killed process")
    with writing_folder(tmp_path / "new") as folder:
        write_file(folder / "inner", "text")
        assert not (tmp_path / "new").exists()
    assert [each.name for each in (tmp_path / "new").iterdir()] == ["inner"]
    with pytest.raises(ZeroDivisionError), writing_folder(tmp_path / "other"):
        1 / 0  # noqa: B018
    assert {each.name for each in tmp_path.iterdir()} == {"left", "new"}


def test_an_output_follows_a_link(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with writing_output(tmp_path / "link") as file:
        file.write(b"text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "text"
    with pytest.raises(UserError, match="cannot be written: No such file"), writing_output(tmp_path / "no" / "file"):
        pass


def test_a_path_of_a_user(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_path("~/run") == tmp_path / "run"
    with pytest.raises(UserError, match="out: expected a path, found 3"):
        user_path(3, argument="out")
    with pytest.raises(UserError, match="no user of this name"):
        user_path("~nobody-of-this-name/run")
