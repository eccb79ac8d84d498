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
from edgefl.errors import UserError
from edgefl.printable import printable, printable_line

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
