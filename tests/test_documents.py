"""What README and docs say is so: their examples run, their links lead somewhere, their commands exist."""

from __future__ import annotations

import doctest
import re
from typing import get_args

import pytest

from edgefl.record.kinds import EventKind

from .user_shell.pages import PAGES, ROOT, commands


def pages(texts):
    return pytest.mark.parametrize("page", texts, ids=lambda page: page.relative_to(ROOT).as_posix())


@pages(PAGES)
def test_the_examples_of_a_page_give_what_it_says(page):
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    source = "\n".join(block for block in blocks if block.lstrip().startswith(">>>"))
    test = doctest.DocTestParser().get_doctest(source, {}, page.name, str(page), 0)
    problems: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS).run(test, out=problems.append)
    assert not problems, "".join(problems)


@pages(PAGES)
def test_the_links_between_pages_lead_to_files(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), target


@pages(PAGES)
def test_every_command_that_a_page_names_exists(page):
    from typer.main import get_command

    from edgefl.cli.app import app

    named = {call[1] for command in commands(page) for call in command.calls if call[0] == "edgefl"}
    assert {name for name in named if not name.startswith("-")} <= set(get_command(app).commands)


def test_the_readme_begins_with_the_two_commands_that_a_fresh_machine_needs():
    first_screen = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:25])
    assert "python -m pip install . && edgefl simulate scenarios/5g_100clients.yaml" in first_screen
    assert "python -m pip install -e '.[test]' && pytest" in first_screen


def test_the_time_model_explains_every_kind_of_row_of_the_event_log():
    text = (ROOT / "docs" / "time-model.md").read_text(encoding="utf-8")
    table = text.partition("## The event log")[2].partition("\n## ")[0]
    kinds = {
        kind
        for row in table.splitlines()
        if row.startswith("| `")
        for kind in re.findall(r"`(\w+)`", row.split("|")[1])
    }
    assert kinds == set(get_args(EventKind))
