"""Registries, units, files and YAML."""

import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.errors import UserError
from edgefl.files import aside, parse_json, read_json, user_path, write_file, writing, writing_folder
from edgefl.fleet.battery import Battery
from edgefl.registry import Registry
from edgefl.units import UNITS, dimension_of, parse, spelt
from edgefl.yaml_file import parse_yaml, read_yaml


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


def test_a_path_of_a_user(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_path("~/run") == tmp_path / "run"
    with pytest.raises(UserError, match="out: expected a path, found 3"):
        user_path(3, argument="out")
    with pytest.raises(UserError, match="no user of this name"):
        user_path("~nobody-of-this-name/run")


PART = """
import time
from {package} import FAMILY

time.sleep(0.05)
FAMILY.register("{name}")("{name}'s part")
"""


@pytest.fixture
def family(tmp_path, monkeypatch):
    """A family of three parts, each of which takes a while to import."""
    folder = tmp_path / "slow_family"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from edgefl.registry import Registry\n\n"
        "FAMILY = Registry('part', package='slow_family', group='edgefl.no_such_group')\n"
    )
    for name in ("one", "three", "two"):
        (folder / f"{name}.py").write_text(PART.format(package="slow_family", name=name))
    monkeypatch.syspath_prepend(str(tmp_path))
    import slow_family

    yield slow_family.FAMILY
    for module in [name for name in sys.modules if name.partition(".")[0] == "slow_family"]:
        del sys.modules[module]


def test_threads_that_ask_while_it_is_imported_find_every_part(family):
    start = threading.Barrier(4)

    def ask(place):
        start.wait()
        time.sleep(0.03 * place)
        return family.names(), family["two"]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == [(["one", "three", "two"], "two's part")] * 4


def test_a_name_that_nobody_has_is_answered_with_the_nearest(family):
    with pytest.raises(UserError, match=r"unknown part 'tree'.*'three'"):
        family["tree"]


def test_a_name_is_given_once():
    parts = Registry("part", package="email", group="edgefl.no_such_group")
    assert parts.register("x")("first") == "first"
    with pytest.raises(ValueError, match="two parts are called 'x'"):
        parts.register("x")("second")


@given(st.sampled_from(sorted(UNITS)), st.floats(1e-9, 1e18), st.floats(1e-9, 1e18) | st.none())
def test_what_is_written_is_read_back(dimension, quantity, beside):
    assert parse(spelt(quantity, dimension, like=beside), dimension) == pytest.approx(quantity, rel=1e-11)


def test_the_dimension_of_a_field_is_found_in_its_type():
    types = {name: (field.annotation, *field.metadata) for name, field in Battery.model_fields.items()}
    found = {name: [found for each in parts if (found := dimension_of(each))] for name, parts in types.items()}
    assert found == {"capacity": ["joules"], "start": [], "charging": ["watts"], "resume": []}


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
