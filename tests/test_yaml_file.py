"""YAML from users is read as plain data, or refused with file, line and reason."""

import pytest

from edgefl.errors import UserError
from edgefl.yaml_file import parse_yaml, read_yaml


def message_of(path):
    with pytest.raises(UserError) as caught:
        read_yaml(path)
    return str(caught.value)


def test_it_reads_yaml_1_2_where_off_is_a_word_and_1e_3_a_number():
    assert parse_yaml("a: off\nb: 1e-3\nc: 010\nd: yes\ne: 0x10") == {
        "a": "off",
        "b": 1e-3,
        "c": 10,
        "d": "yes",
        "e": 16,
    }


def test_a_file_is_read_with_and_without_a_byte_order_mark(tmp_path):
    for name, mark in (("plain.yaml", b""), ("marked.yaml", b"\xef\xbb\xbf")):
        (tmp_path / name).write_bytes(mark + "name: Bär\n".encode())
        assert read_yaml(tmp_path / name) == {"name": "Bär"}


def test_a_missing_file_and_a_folder_are_user_errors(tmp_path):
    assert message_of(tmp_path / "none.yaml").endswith("none.yaml: no such file")
    assert "found a folder" in message_of(tmp_path)


def test_a_file_that_is_not_utf_8_names_byte_and_line(tmp_path):
    (tmp_path / "latin.yaml").write_bytes(b"a: 1\nb: \xe4\n")
    assert "found the byte 0xe4 in line 2" in message_of(tmp_path / "latin.yaml")


@pytest.mark.parametrize("text", ["", "# only a comment\n", "null\n"])
def test_an_empty_file_says_so(tmp_path, text):
    (tmp_path / "empty.yaml").write_text(text)
    assert "empty.yaml: expected YAML" in message_of(tmp_path / "empty.yaml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: [1, 2\nc: 3", ["line 3", "not YAML"]),
        ("a: 1\nb:\n\t- 1", ["line 3", "not YAML"]),
        ("a: 1\na: 2", ["line 2", "twice", '"a"']),
        ("a: 1\n---\nb: 2", ["line 2", "second"]),
        ("a: !!python/object/apply:os.system [ls]", ["line 1", "plain data"]),
        ("a: *nowhere", ["line 1", "nowhere"]),
    ],
)
def test_text_that_is_no_plain_yaml_names_the_line_and_the_reason(text, words):
    with pytest.raises(UserError) as caught:
        parse_yaml(text, file="a.yaml")
    assert str(caught.value).startswith("a.yaml: ")
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_an_alias_is_what_it_names():
    assert parse_yaml("a: &x {b: 1}\nc: *x") == {"a": {"b": 1}, "c": {"b": 1}}
