"""Every command of a page is found, and a session has nothing of the shell that began it."""

from edgefl.scenario import load_scenario

from .pages import PAGES, ROOT, blocks, commands


def test_every_line_of_a_page_that_looks_like_a_command_is_one():
    """A second way to find them: lines, wherever they stand."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        found = {command.text.splitlines()[0] for command in commands(page) if not command.within_text}
        lines = (line.removeprefix("$ ") for line in text.splitlines())
        programs = ("edgefl ", "EDGEFL_", "RAY_", "pip ", "python ")
        assert {line for line in lines if line.startswith(programs)} <= found, page


def test_changes_that_a_page_shows_alone_are_accepted():
    (block,) = [block for block in blocks(ROOT / "docs" / "scenarios.md") if block.text.startswith("--set")]
    for line in block.text.splitlines():
        changes = [part.strip().strip("'") for part in line.partition("#")[0].split("--set") if part.strip()]
        assert changes
        load_scenario("lte_500phones", changes)
