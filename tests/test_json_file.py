"""JSON from elsewhere is read as plain data, or refused in one sentence."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl import limits
from edgefl.errors import UserError
from edgefl.json_file import parse_json, read_json

LARGEST = limits.LARGEST_INTEGER
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-LARGEST, LARGEST)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
WRONG = {
    "nothing": b"",
    "half a text": b'{"a": [1, 2',
    "no JSON": b"\x89PNG\r\n",
    "no UTF-8": b'{"a": "\xff"}',
    "NaN": b"[NaN]",
    "an infinity": b"[-Infinity]",
    "beyond a float": b"[1e999]",
}


@settings(max_examples=20)
@given(VALUES)
def test_ordinary_data_is_read_as_the_standard_library_reads_it(data):
    text = json.dumps(data)
    assert parse_json(text) == json.loads(text) == data
    assert parse_json(text.encode()) == data


@pytest.mark.parametrize("content", WRONG.values(), ids=WRONG)
def test_what_is_not_plain_data_is_refused_in_one_sentence(tmp_path, content):
    file = tmp_path / "a.json"
    file.write_bytes(content)
    with pytest.raises(UserError) as refusal:
        read_json(file)
    assert str(refusal.value).startswith(f"{file}: ")
    assert "\n" not in str(refusal.value)


def test_nan_is_a_missing_number_where_such_are_expected(tmp_path):
    (tmp_path / "a.json").write_text("[NaN, 1]")
    assert read_json(tmp_path / "a.json", missing=True) == [None, 1]


def test_the_line_of_a_number_is_named(tmp_path):
    (tmp_path / "a.json").write_text('{\n"a": 1,\n"b": 1e999\n}')
    with pytest.raises(UserError, match=r"a\.json: line 3: expected .* range of a float, found 1e999$"):
        read_json(tmp_path / "a.json")


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        read_json(tmp_path / "none")
    with pytest.raises(UserError, match="found a folder"):
        read_json(tmp_path)
