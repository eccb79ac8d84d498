"""What README and docs say is so: their examples run, their links lead somewhere, their commands exist."""

from __future__ import annotations

import doctest
import re
from typing import get_args

import pytest

from edgefl.record.kinds import EventKind

from .user_shell.pages import PAGES, ROOT


def examples(page):
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return "\n".join(block for block in blocks if block.lstrip().startswith(">>>"))


def marked(page):
    dear = page.name in ("own-world.md", "python.md")
    return pytest.param(page, marks=[pytest.mark.full] * dear, id=page.relative_to(ROOT).as_posix())


@pytest.mark.parametrize("page", [marked(page) for page in PAGES if examples(page)])
def test_the_examples_of_a_page_give_what_it_says(page):
    test = doctest.DocTestParser().get_doctest(examples(page), {}, page.name, str(page), 0)
    problems: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS).run(test, out=problems.append)
    assert not problems, "".join(problems)


def test_the_links_between_pages_lead_to_files():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
            if not target.startswith(("http://", "https://")):
                assert (page.parent / target).exists(), (page.name, target)


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
