"""Every command that README and docs show ends as it should in a shell that is not set up."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from edgefl.cli.entry import app
from edgefl.scenario import load_scenario

from .given import NEVER, Given, missing, prepare
from .pages import PAGES, ROOT, Command, blocks, commands
from .session import Session

VARIANTS = {
    "edgefl simulate": ("--no-train", "--resume", "--add-seeds"),
    "edgefl report": ("--html",),
    "edgefl replay": ("--sensitivity",),
    "edgefl plan": ("--for", "--seeds-for", "--published"),
    "edgefl emulate": ("--check",),
}
"""Options with which a command does something else."""

LATER = {
    "edgefl diagnose": "tests/diagnosis/test_diagnose.py",
    "edgefl emulate": "tests/emulation/test_emulate.py",
    "edgefl profile check": "tests/profiling/test_table_profile.py",
    "edgefl profile fit": "tests/cli/test_profile_measure.py",
    "edgefl profile measure": "tests/cli/test_profile_measure.py",
    "edgefl replay --sensitivity": "tests/rerun/test_sensitivity.py",
    "edgefl schedule": "tests/planning/test_compare_schedulers.py",
    "edgefl simulate": "tests/cli/test_simulate.py, and with --no-train and --resume here",
    "edgefl simulate --add-seeds": "tests/experiment/test_added_seeds.py",
    "edgefl sweep": "tests/user_shell/test_fresh_processes.py",
    "python measure_device.pyz": "tests/cli/test_profile_measure.py",
    "python": "is left out",
    "pip": "is left out",
    "pytest": "is left out",
}
"""Families that take long here, and the test that calls them with less."""

ELSEWHERE = ("OUT", "PAPER", "runs/tau", "-emulated")
"""Words of commands for which another of their family is chosen, since what they read takes longer to make."""

TREE = get_command(app)


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def whole(page: Path) -> list[Command]:
    """The commands of a page that are more than a name."""
    return [command for command in commands(page) if not command.is_a_name]


@pytest.fixture(scope="module", name="given")
def given_fixture(tmp_path_factory):
    return Given(tmp_path_factory.mktemp("given"))


def families(command: Command) -> Iterator[str]:
    """What each program of a command does: its name, its subcommand, and an option that makes it do something else."""
    for call in command.calls:
        words, node = [call[0]], TREE if call[0] == "edgefl" else None
        for word in itertools.dropwhile(lambda word: word.startswith("-"), call[1:]):
            node = getattr(node, "commands", {}).get(word)
            if node is None and not (call[0] == "python" and word.endswith(".pyz")):
                break
            words.append(word)
        family = " ".join(words)
        yield " ".join([family, *(option for option in VARIANTS.get(family, ()) if option in call)])


@functools.cache
def one_of_each_family() -> list[Command]:
    """The first command of each family that can run anywhere, in the order of the pages."""
    chosen: dict[str, Command] = {}
    for page in PAGES:
        for command in whole(page):
            if any(
                word in command.text for word in ("ray", "tensorboard", "flower", "fashion_mnist", *NEVER, *ELSEWHERE)
            ):
                continue
            if "lte" in command.text and "--no-train" not in command.text:
                continue
            for family in families(command):
                if family not in LATER:
                    chosen.setdefault(family, command)
    return list(dict.fromkeys(chosen.values()))


def failures(session: Session, wanted: list[Command], *, here: bool) -> list[str]:
    """Run commands in order, in this process where that is possible; what is wrong with those that do not end well."""
    failures = []
    for command in wanted:
        reason = missing(command, session)
        if reason is not None:
            print(f"skipped: {command}: {reason}")
            continue
        prepare(session, command)
        done = session.call(command) if here else session.run(command.text)
        print(f"{done.seconds:6.1f} s  {command}")
        if done.failure is not None:
            failures.append(f"{command.page.name}:{command.line}\n{done.failure}")
    return failures


def sessions(folder: Path, given: Given, wanted: list[Command], *, here: bool) -> None:
    """Run commands of several pages, in one session for each page's blocks and one for its text."""
    wrong = []
    for page, within_text in dict.fromkeys((command.page, command.within_text) for command in wanted):
        chosen = [command for command in wanted if (command.page, command.within_text) == (page, within_text)]
        own = folder / f"{page.stem}-{'text' if within_text else 'blocks'}"
        own.mkdir()
        session = Session(own)
        given.to(session, chosen)
        wrong += failures(session, chosen, here=here)
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.full
def test_one_command_of_each_family_ends(tmp_path, given):
    sessions(tmp_path, given, one_of_each_family(), here=True)


@pytest.mark.release
@pytest.mark.parametrize("page", [page for page in PAGES if whole(page)], ids=name)
def test_every_command_of_a_page_ends(tmp_path, given, page):
    sessions(tmp_path, given, whole(page), here=False)


def test_no_family_of_commands_escapes():
    """Whatever edgefl can do is shown on a page, and what is shown runs in the default suite, or says why not."""

    def leaves(node, words):
        for word, child in getattr(node, "commands", {}).items():
            yield from leaves(child, [*words, word]) if hasattr(child, "commands") else [" ".join([*words, word])]

    called = [call for page in PAGES for command in commands(page) for call in command.calls if call[0] == "edgefl"]
    assert {call[1] for call in called if not call[1].startswith("-")} <= set(TREE.commands)
    shown = {family for page in PAGES for command in whole(page) for family in families(command)}
    run = {family for command in one_of_each_family() for family in families(command)}
    assert set(leaves(TREE, ["edgefl"])) <= shown
    assert {family for family in shown if family not in LATER and " " in family} <= run


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


FULL_SIZE_SECONDS = 900.0

SHOWING = [page for page in PAGES if any(command.shown for command in commands(page))]


def differences(shown: str, printed: str) -> list[str]:
    """The lines of a page from the first that was not printed on; between those that were, others may stand."""
    lines = iter([" ".join(line.split()) for line in printed.splitlines()])
    wanted = [" ".join(line.split()) for line in shown.splitlines()]
    return [line for line in wanted if line not in ("", "...") and line not in lines]


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


@pytest.fixture
def session_of(tmp_path):
    """The folder after all commands of a page but those that measure for minutes."""

    def follow(page, *, full=True):
        (tmp_path / "given").mkdir()
        (tmp_path / "shell").mkdir()
        session = Session(tmp_path / "shell", full=full)
        wanted = [command for command in commands(ROOT / "docs" / page) if not command.is_a_name]
        Given(tmp_path / "given").to(session, wanted)
        for command in wanted:
            if "profile measure" not in command.text:  # a shipped profile stands in for it
                done = session.call(command)
                assert done.failure is None, done.failure
        return session.folder

    return follow


@pytest.mark.parametrize(
    "full", [pytest.param(False, marks=pytest.mark.full), pytest.param(True, marks=pytest.mark.release)]
)
def test_the_tutorial_leads_from_an_empty_folder_to_a_report(session_of, full):
    folder = session_of("tutorial.md", full=full)
    summary = json.loads((folder / "runs" / "mine" / "summary.json").read_text())
    least = 0.85 if full else 0
    assert all(entry["accuracy"]["final"] > least for found in summary["methods"].values() for entry in found)
    scenario = (folder / "runs" / "mine" / "scenario.yaml").read_text(encoding="utf-8")
    assert "street.csv" in scenario, "the last run has the network of step 5"
    assert (folder / "clients.png").stat().st_size > 10_000
    assert "mine" in (folder / "mine.html").read_text(encoding="utf-8")


@pytest.mark.full
def test_the_commands_of_the_data_page_train_on_the_data_of_the_page(session_of):
    folder = session_of("data.md")
    for run in ("tables", "wine"):
        summary = json.loads((folder / "runs" / run / "summary.json").read_text())
        for method in ("fedavg", "scaffold"):
            assert summary["methods"][method][0]["accuracy"]["final"] > 0.6
    summary = json.loads((folder / "runs" / "estimates" / "summary.json").read_text())
    assert summary["methods"]["fedavg"][0]["metric"]["final"] < 0.9  # 1 without a model
