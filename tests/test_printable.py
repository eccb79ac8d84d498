"""Text from files is printed so that a terminal obeys nothing in it, and long values are shortened."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.cli import main
from edgefl.errors import UserError
from edgefl.limits import LINE_CHARACTERS, WORD_CHARACTERS
from edgefl.printable import printable, printable_line, shortened

MARKS = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}
ANY_TEXT = st.text(st.characters(codec=None), max_size=40)


def obeyed(text):
    """What a terminal or a reader's eye obeys, by the Unicode character database."""
    return [
        each for each in text if unicodedata.category(each) in ("Cc", "Cs") or unicodedata.bidirectional(each) in MARKS
    ]


@settings(max_examples=40)
@given(ANY_TEXT, ANY_TEXT)
def test_printable_text_and_messages_hold_no_control_character_but_line_ends_and_tabs(text, field):
    assert set(obeyed(printable(text))) <= {"\n", "\t"}
    assert obeyed(printable_line(text)) == []
    assert printable(printable(text)) == printable(text)
    assert set(obeyed(str(UserError(text, field=field, file=field)))) <= {"\n", "\t"}


def test_what_is_printable_stays():
    assert printable_line("fedmlb ± 0.3 % → „ö“") == "fedmlb ± 0.3 % → „ö“"


@settings(max_examples=40)
@given(st.dictionaries(ANY_TEXT, ANY_TEXT))
def test_printed_json_is_the_same_data(data):
    assert json.loads(printable(json.dumps(data, ensure_ascii=False, indent=2))) == data


LONG_TEXT = st.lists(st.sampled_from(["a" * 199, "b" * 150, "é", " ", "\n", "expected "]), max_size=40).map("".join)


@settings(max_examples=40)
@given(LONG_TEXT)
def test_a_shortened_text_has_the_same_lines_without_the_middle_of_the_long_ones(text):
    lines, short = text.split("\n"), shortened(text).split("\n")
    assert len(short) == len(lines)
    for line, found in zip(lines, short, strict=True):
        words = line.split(" ")
        assert len(found) <= min(len(line), LINE_CHARACTERS)
        if max(map(len, words)) <= WORD_CHARACTERS and len(line) <= LINE_CHARACTERS:
            assert found == line
        else:
            assert max(map(len, found.split(" "))) <= WORD_CHARACTERS
            assert found.count("…") >= 1
            assert found[:99] == line[:99]


@pytest.mark.parametrize("value", ["9" * 5000, "k w " * 5000, "\x1b[2J\u202e"], ids=["digits", "words", "controls"])
def test_a_command_escapes_and_shortens_a_value_in_its_message(value, capsys):
    assert main(["plan", "5g_10clients", "--set", f"training.rounds={value}x"]) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: ")
    assert set(obeyed(message)) <= {"\n"}
    assert max(map(len, message.splitlines())) < LINE_CHARACTERS + 3 * WORD_CHARACTERS
