"""What a page says that a command prints is what it prints, at its full size."""

from __future__ import annotations

import pytest

from .given import Given, missing
from .pages import PAGES, ROOT, blocks, commands
from .session import Session

FULL_SIZE_SECONDS = 900.0

SHOWING = [page for page in PAGES if any(command.shown for command in commands(page))]


def differences(shown: str, printed: str) -> list[str]:
    """The lines of a page from the first that was not printed on; between those that were, others may stand."""
    lines = iter([" ".join(line.split()) for line in printed.splitlines()])
    wanted = [" ".join(line.split()) for line in shown.splitlines()]
    return [line for line in wanted if line not in ("", "...") and line not in lines]


def test_a_table_that_stands_on_several_pages_is_the_same_on_all():
    tables = [
        block.text.partition("$ ")[2].partition("\n")[2] or block.text
        for page in PAGES
        for block in blocks(page)
        if block.language == "text" and "Rows: end of the last round" in block.text
    ]
    assert len(tables) > 1
    assert len(set(tables)) == 1


@pytest.mark.release
@pytest.mark.parametrize("page", SHOWING, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_shows_what_its_commands_print(tmp_path, page):
    session = Session(tmp_path, full=True)
    wrong = []
    wanted = commands(page)
    (tmp_path / "given").mkdir()
    Given(tmp_path / "given").to(session, [command for command in wanted if command.shown])
    needed = {word for command in wanted if command.shown for word in command.text.split() if word.startswith("runs/")}
    for command in wanted:
        if command.within_text or not (command.shown or needed & set(command.text.split())):
            continue
        if missing(command, session):
            continue
        done = session.run(command.text, FULL_SIZE_SECONDS)
        found = [done.failure] if done.failure else differences(command.shown, done.output)
        wrong += [f"{command}: {each}" for each in found]
        if found:
            wrong.append(done.output)
    assert not wrong, "\n".join(wrong)
