"""The parser of the pages finds every command, and refuses what it cannot place."""

from pathlib import Path

import pytest

from edgefl.scenario import load_scenario

from .pages import PAGES, ROOT, blocks, commands
from .session import Session
from .stand_in import SMALL, shortened


def page_with(folder: Path, text: str) -> Path:
    page = folder / "page.md"
    page.write_text(text, encoding="utf-8")
    return page


def test_every_line_of_a_page_that_looks_like_a_command_is_one():
    """A second way to find them: lines, wherever they stand."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        found = {command.text.splitlines()[0] for command in commands(page) if not command.within_text}
        lines = (line.removeprefix("$ ") for line in text.splitlines())
        programs = ("edgefl ", "EDGEFL_", "RAY_", "pip ", "python ")
        assert {line for line in lines if line.startswith(programs)} <= found, page


def test_a_command_is_taken_to_the_letter_with_what_it_prints(tmp_path):
    page = page_with(
        tmp_path,
        "```console\n$ edgefl plan my.yaml \\\n      --set 'a={b: c}'   # why\nfirst\nsecond\n$ edgefl models\n```\n",
    )
    plan, models = commands(page)
    assert plan.text == "edgefl plan my.yaml \\\n      --set 'a={b: c}'   # why"
    assert (plan.shown, models.shown) == ("first\nsecond\n", "")
    assert plan.calls == [["edgefl", "plan", "my.yaml", "--set", "a={b: c}"]]
    assert (plan.line, models.line) == (2, 6)


def test_programs_behind_each_other_are_told_apart(tmp_path):
    (command,) = commands(page_with(tmp_path, "```\npip install '.[a]' && EDGEFL_DATA=~/x edgefl models > file\n```\n"))
    assert command.calls == [["pip", "install", ".[a]"], ["edgefl", "models"]]


def test_commands_within_a_sentence_count_once_and_names_alone_are_no_commands(tmp_path):
    text = "# `edgefl plan`\nSay `edgefl report RUN...`, again `edgefl report\nRUN...`, or `edgefl methods`.\n"
    found = commands(page_with(tmp_path, text))
    assert [command.text for command in found if not command.is_a_name] == ["edgefl report RUN", "edgefl methods"]


@pytest.mark.parametrize(
    "block", ["```\nmake it so\n```", "```sh\nedgefl models\n```", "```console\nedgefl models\n```"]
)
def test_a_block_that_nobody_can_place_is_refused(tmp_path, block):
    with pytest.raises(AssertionError, match=r"page.md:2"):
        commands(page_with(tmp_path, f"{block}\n"))


def test_what_makes_a_command_short_follows_what_it_says():
    assert shortened(["edgefl", "simulate", "--resume", "RUN"]) == ["edgefl", "simulate", "--resume", "RUN"]
    assert shortened(["edgefl", "simulate", "a", "--seed", "3"])[4:] == ["3", *SMALL]
    assert shortened(["edgefl", "report", "RUN"]) == ["edgefl", "report", "RUN"]


def test_changes_that_a_page_shows_alone_are_accepted():
    (block,) = [block for block in blocks(ROOT / "docs" / "scenarios.md") if block.text.startswith("--set")]
    for line in block.text.splitlines():
        changes = [part.strip().strip("'") for part in line.partition("#")[0].split("--set") if part.strip()]
        assert changes
        load_scenario("lte_500phones", changes)


def test_a_session_has_a_path_and_a_home_and_ends_with_all_that_it_began(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    session = Session(tmp_path)
    names = {line.partition("=")[0] for line in session.run("env").output.splitlines()}
    assert names - {"PWD", "OLDPWD", "SHLVL", "_"} == {"PATH", "HOME"}
    stopped = session.run("sleep 60 & sleep 60", limit=0.5)
    assert (stopped.code, stopped.seconds < 30) == (None, True)
    assert session.run("exit 3").code == 3
    assert "left out" in session.run("python -m pip install . && pytest").output
