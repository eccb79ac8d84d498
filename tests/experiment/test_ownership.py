"""A run directory belongs to the process that holds it, and edgefl writes and removes only files of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from edgefl.cli import main
from edgefl.errors import UserError
from edgefl.experiment import resume, run
from edgefl.record.events import Listener
from edgefl.scenario.loading import check
from edgefl.simulation.rounds import RoundBook

from ..small_runs import SMALL, Stop, tree


def timed(folder: Path, **options) -> Path:
    return run(check(SMALL), out=folder, train=False, **options)


def interrupted(folder: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        timed(folder, listeners=[Stop(2)])


def everything(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every entry of a folder with its inode and its content."""
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_ino, path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
    }


HOLDINGS = {
    "a finished run": timed,
    "an interrupted run": interrupted,
    "somebody's file": lambda folder: (folder / "thesis.tex").write_text("years of work"),
    "somebody's scenario": lambda folder: (folder / "scenario.yaml").write_text("name: mine"),
    "somebody's folder": lambda folder: (folder / "fedavg" / "seed-0").mkdir(parents=True),
    "a hidden file": lambda folder: (folder / ".git").write_text("gitdir: elsewhere"),
}


@pytest.mark.parametrize("holding", HOLDINGS)
def test_a_folder_that_holds_something_is_refused_and_left_as_it_is(tmp_path, monkeypatch, capsys, holding):
    folder = tmp_path / "folder"
    folder.mkdir()
    HOLDINGS[holding](folder)
    before = everything(folder)
    with pytest.raises(UserError, match=f"{folder}: .*choose another folder"):
        timed(folder)
    monkeypatch.chdir(folder)
    assert main(["simulate", "5g_100clients", "--no-train", "--out", "."]) == 2
    assert "choose another folder" in capsys.readouterr().err
    assert everything(folder) == before


def mistake(*_, **__):
    raise UserError("something does not fit")


@pytest.mark.parametrize(
    ("module", "part", "made"),
    [("run", "shared_world", "a/b/run"), ("one_run", "setup_of", "a"), ("one_run", "setup_of", "a/b/run")],
)
def test_a_mistake_before_the_first_round_removes_what_was_made_and_nothing_else(
    tmp_path, monkeypatch, module, part, made
):
    (tmp_path / made).mkdir(parents=True)
    (tmp_path / "notes.txt").write_text("mine")
    before = everything(tmp_path)
    monkeypatch.setattr(sys.modules[f"edgefl.experiment.{module}"], part, mistake)
    with pytest.raises(UserError, match="does not fit"):
        timed(tmp_path / "a" / "b" / "run")
    assert everything(tmp_path) == before


def test_a_mistake_found_after_a_round_removes_nothing_and_the_run_can_be_resumed(tmp_path):
    account = RoundBook._account

    def late(book, round, *others):
        if round == 2:
            mistake()
        return account(book, round, *others)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RoundBook, "_account", late)
        with pytest.raises(UserError, match="does not fit"):
            timed(tmp_path / "run")
    assert tree(resume(tmp_path / "run")) == tree(timed(tmp_path / "whole"))


@pytest.mark.parametrize("error", [UserError("not mine"), OSError(28, "No space left")], ids=repr)
@pytest.mark.parametrize("moment", ["began", "round_ended"])
def test_an_error_of_a_listener_reaches_the_caller_as_it_is(tmp_path, error, moment):
    def fail(*_):
        raise error

    failing = Listener()
    setattr(failing, moment, fail)
    with pytest.raises(type(error)) as raised:
        timed(tmp_path / "run", listeners=[failing])
    assert raised.value is error
    if moment == "round_ended":
        assert (resume(tmp_path / "run") / "summary.json").exists()


def test_a_second_process_is_refused_at_every_moment_of_the_first(tmp_path):
    """By its own mistakes it changes nothing of the first, either."""
    folder, refused = tmp_path / "run", []

    class Second(Listener):
        def _try(self):
            before = everything(folder)
            for begin in (timed, resume):
                with pytest.raises(UserError) as refusal:
                    begin(folder)
                refused.append(refusal.value.message)
            assert everything(folder) == before

        def began(self, runs, rounds):
            self._try()

        def round_ended(self, row):
            self._try()

        def run_ended(self, result):
            self._try()

    expected = tree(timed(tmp_path / "expected"))
    timed(folder, listeners=[Second()])
    assert tree(folder) == expected
    assert len(refused) == 2 * (1 + 4 + 1)
    told = {"another process is working in this run directory", "nothing to resume: it contains no interrupted run"}
    assert set(refused) == told
