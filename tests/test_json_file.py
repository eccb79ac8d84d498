"""JSON from elsewhere is read, or refused in one sentence; it never hangs, exhausts the memory or ends in a fault."""

from __future__ import annotations

import json
import math
import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl import limits
from edgefl.errors import UserError
from edgefl.json_file import parse_json, read_json

LARGEST = limits.LARGEST_INTEGER
NUMBERS = st.integers(-LARGEST, LARGEST) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)

HOSTILE = {
    "nothing": b"",
    "half a text": b'{"a": [1, 2',
    "no JSON": b"\x89PNG\r\n",
    "no UTF-8": b'{"a": "\xff"}',
    "deep lists": b"[" * 100_000,
    "deep and whole": b"[" * 900 + b"]" * 900,
    "deep mappings": b'{"a":' * 100_000,
    "many digits": b'{"a": ' + b"9" * 5000 + b"}",
    "a whole number beyond 64 bits": b"[" + b"1" + b"0" * 400 + b"]",
    "just too large": b"[9223372036854775808]",
    "beyond a float": b"[1e999]",
    "NaN": b"[NaN]",
    "Infinity": b"[-Infinity]",
    "a fraction of many digits": b"[1e" + b"9" * 5000 + b"]",
}


@given(VALUES)
def test_ordinary_data_is_read_as_the_standard_library_reads_it(data):
    text = json.dumps(data)
    assert parse_json(text) == json.loads(text) == data
    assert parse_json(text.encode()) == data


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("missing", [False, True])
def test_what_is_not_plain_data_is_refused_in_one_sentence(tmp_path, content, missing):
    file = tmp_path / "a.json"
    file.write_bytes(content)
    if missing and content in (HOSTILE["NaN"], HOSTILE["Infinity"]):
        assert read_json(file, missing=True) == [None]
        return
    with pytest.raises(UserError) as refusal:
        read_json(file, missing=missing)
    assert str(refusal.value).startswith(f"{file}: ")
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < len(str(file)) + 200


@given(st.binary(max_size=200) | st.text('[]{}:,"0123456789.eE+-NaInfty \n', max_size=200).map(str.encode))
def test_any_bytes_are_read_or_refused(content):
    try:
        data = parse_json(content)
    except UserError:
        return
    assert all(math.isfinite(number) for number in _numbers(data))


def _numbers(data):
    if isinstance(data, dict | list):
        for inner in data.values() if isinstance(data, dict) else data:
            yield from _numbers(inner)
    elif isinstance(data, int | float):
        yield data


def test_the_limits_are_reached_exactly():
    for inner in ("", "1"):
        assert parse_json("[" * limits.DEPTH + inner + "]" * limits.DEPTH)
        with pytest.raises(UserError, match=f"at most {limits.DEPTH} levels"):
            parse_json("[" * (limits.DEPTH + 1) + inner + "]" * (limits.DEPTH + 1))
    assert parse_json(f"[{limits.LARGEST_INTEGER}, -{limits.LARGEST_INTEGER}]") == [
        limits.LARGEST_INTEGER,
        -limits.LARGEST_INTEGER,
    ]


def test_the_line_of_a_number_is_named(tmp_path):
    (tmp_path / "a.json").write_text('{\n"a": 1,\n"b": 1e999\n}')
    with pytest.raises(UserError, match=r"a\.json: line 3: expected .* range of a float, found 1e999$"):
        read_json(tmp_path / "a.json")


def test_a_file_is_limited_in_size(tmp_path):
    (tmp_path / "a.json").write_text("[" + " " * 2048 + "]")
    assert read_json(tmp_path / "a.json", maximum=4096) == []
    with pytest.raises(UserError, match="expected a JSON file of at most 1 KiB, found a larger one"):
        read_json(tmp_path / "a.json", maximum=1024)


def test_only_plain_files_are_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name, found in (
        (tmp_path / "pipe", "found a named pipe"),
        (tmp_path / "folder", "found a folder"),
        ("/dev/zero", "found a device"),
        ("/dev/null", "found a device"),
        (tmp_path / "none", "no such file"),
        ("a\0b", "not a valid file name"),
        (tmp_path / ("x" * 5000), "File name too long"),
        (tmp_path / "folder" / ".." / "none" / "x", "no such file"),
    ):
        with pytest.raises(UserError, match=re.escape(found)) as refusal:
            read_json(name)
        assert "Errno" not in str(refusal.value)


def test_a_link_to_a_plain_file_is_read(tmp_path):
    (tmp_path / "a.json").write_text("[1]")
    (tmp_path / "b.json").symlink_to("a.json")
    assert read_json(tmp_path / "b.json") == [1]
