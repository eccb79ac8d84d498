"""Text from files is printed so that a terminal obeys nothing in it."""

from __future__ import annotations

import ast
import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import edgefl
from edgefl.cli import main
from edgefl.errors import UserError
from edgefl.limits import LINE_CHARACTERS, WORD_CHARACTERS
from edgefl.printable import printable, printable_line, shortened

COMMANDS = Path(edgefl.__file__).parent / "cli"
MARKS = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}
ANY_TEXT = st.text(st.characters(codec=None), max_size=40)


def obeyed(text):
    """What a terminal or a reader's eye obeys, by the Unicode character database."""
    return [
        each for each in text if unicodedata.category(each) in ("Cc", "Cs") or unicodedata.bidirectional(each) in MARKS
    ]


@given(ANY_TEXT)
def test_printable_text_holds_no_control_character_but_line_ends_and_tabs(text):
    assert set(obeyed(printable(text))) <= {"\n", "\t"}
    assert obeyed(printable_line(text)) == []
    printable(text).encode("utf-8")


@given(ANY_TEXT)
def test_what_is_printable_stays(text):
    assert printable(printable(text)) == printable(text)
    assert printable_line("fedmlb ± 0.3 % → „ö“") == "fedmlb ± 0.3 % → „ö“"


@given(st.dictionaries(ANY_TEXT, ANY_TEXT))
def test_printed_json_is_the_same_data(data):
    for ascii_only in (True, False):
        assert json.loads(printable(json.dumps(data, ensure_ascii=ascii_only, indent=2))) == data


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_no_message_to_the_user_holds_a_control_character(message, field, file):
    error = UserError(message, field=field, file=file)
    assert set(obeyed(str(error))) <= {"\n", "\t"}
    assert str(error).count("\n") == message.count("\n")
    assert error.args == (str(error),)


LONG_TEXT = st.lists(st.sampled_from(["a" * 199, "b" * 150, "é", " ", "\n", "expected "]), max_size=40).map("".join)


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


@pytest.mark.parametrize(("length", "whole"), [(WORD_CHARACTERS, True), (WORD_CHARACTERS + 1, False)])
def test_a_message_holds_a_value_file_and_field_up_to_a_limit(length, whole):
    value = "1" * (length - 1) + "2"
    for text in (str(UserError(f"expected a rate, found {value}")), str(UserError("expected a rate", file=value))):
        assert (value in text) == whole
        assert "expected a rate" in text
        assert text.partition(": expected")[0].endswith("2") or text.endswith("2")
        assert len(text) <= WORD_CHARACTERS + 30


LONG = "9" * 5000
SPACED = "k w " * 5000
COMMANDS_WITH_LONG_VALUES = {
    "a seed": ["simulate", "5g_10clients", "--no-train", "--seed", LONG],
    "a choice": ["simulate", "5g_10clients", "--device", SPACED],
    "an option": ["plan", "5g_10clients", f"--{LONG}"],
    "a value": ["plan", "5g_10clients", "--set", f"training.rounds={LONG}x"],
    "a key": ["plan", "5g_10clients", "--set", f"training.{SPACED}=1"],
    "a name": ["plan", "5g_10clients", "--set", f"model={SPACED}"],
    "a scenario": ["plan", SPACED],
    "a folder": ["report", LONG],
}


@pytest.mark.parametrize("arguments", COMMANDS_WITH_LONG_VALUES.values(), ids=COMMANDS_WITH_LONG_VALUES)
def test_a_command_shortens_a_long_value_in_its_message(arguments, capsys):
    assert main(arguments) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: ")
    assert max(map(len, message.splitlines())) < LINE_CHARACTERS + 3 * WORD_CHARACTERS
    assert max(map(len, message.split(" "))) <= 2 * WORD_CHARACTERS


@pytest.mark.parametrize("module", sorted(COMMANDS.glob("*.py")), ids=lambda path: path.stem)
def test_commands_print_in_one_place(module):
    """All other modules call ``say``, or print on a console that ``edgefl.cli.console`` makes."""
    if module.stem in ("printing", "console"):
        return
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in ("print", "typer.echo", "typer.secho", "click.echo", "Console", "traceback.print_exc")
            assert not called.startswith(("sys.stdout.write", "sys.stderr.write", "traceback.print"))
