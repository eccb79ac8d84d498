"""A run directory belongs to the process that holds it: nothing of anybody else is ever written over or removed."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import shutil
import sys
import threading
from pathlib import Path

import pytest

import edgefl
from edgefl.cli import main
from edgefl.durable_file import aside
from edgefl.errors import EdgeflError, UserError
from edgefl.experiment import RunMoved, is_interrupted, resume, run
from edgefl.experiment.folder_lock import FolderLock
from edgefl.record.listener import Listener
from edgefl.record.names import LOCK
from edgefl.rerun.verify import verify
from edgefl.scenario.loading import check
from edgefl.simulation.rounds import RoundBook

from ..small_runs import SMALL, Stop, tree


def interrupted(folder: Path, rounds: int = 2, **options) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(check(SMALL), out=folder, listeners=[Stop(rounds)], **options)


HOLDINGS = {
    "a finished run": lambda folder: run(check(SMALL), out=folder, train=False),
    "an interrupted run": interrupted,
    "somebody's file": lambda folder: (folder / "thesis.tex").write_text("years of work"),
    "somebody's scenario": lambda folder: (folder / "scenario.yaml").write_text("name: mine"),
    "somebody's folder": lambda folder: (folder / "fedavg" / "seed-0").mkdir(parents=True),
    "a hidden file": lambda folder: (folder / ".git").write_text("gitdir: elsewhere"),
    "a link that leads nowhere": lambda folder: (folder / "results").symlink_to("nowhere"),
}


def everything(folder: Path) -> dict[str, tuple[int, bytes | str]]:
    """Every entry of a folder with what it is, what it holds and, of a link, where it leads."""
    return {
        path.relative_to(folder).as_posix(): (
            path.lstat().st_ino,
            os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else "",
        )
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize("call", ["run", "simulate", "command"])
@pytest.mark.parametrize("holding", HOLDINGS)
@pytest.mark.parametrize("named", ["folder", "."])
def test_a_folder_that_holds_something_is_refused_and_left_as_it_is(
    tmp_path, monkeypatch, capsys, call, holding, named
):
    folder = tmp_path / "folder"
    folder.mkdir()
    HOLDINGS[holding](folder)
    before = everything(tmp_path)
    monkeypatch.chdir(folder if named == "." else tmp_path)
    if call == "command":
        assert main(["simulate", "5g_100clients", "--no-train", "--out", named]) == 2
        message = capsys.readouterr().err
    else:
        begin = {
            "run": lambda: run(check(SMALL), out=Path(named), train=False),
            "simulate": lambda: edgefl.simulate(check(SMALL), out=named, train=False),
        }[call]
        with pytest.raises(UserError) as refusal:
            begin()
        message = str(refusal.value)
    assert "choose another folder" in message
    assert f"{named}: " in message or f"{folder}: " in message
    assert everything(tmp_path) == before


def test_every_file_of_a_run_has_the_permissions_of_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        folder = run(check(SMALL), out=tmp_path / "run")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()}
    assert "final.safetensors" in modes
    assert set(modes.values()) == {0o640}


def mistake(*_, **__):
    raise UserError("something does not fit")


@pytest.mark.parametrize("existed", ["nothing", "its parents", "the folder"])
@pytest.mark.parametrize("moment", ["before the first run", "when a run begins"])
def test_a_mistake_found_late_removes_what_was_made_and_nothing_else(tmp_path, monkeypatch, existed, moment):
    folder = tmp_path / "a" / "b" / "run"
    {"nothing": tmp_path, "its parents": folder.parent, "the folder": folder}[existed].mkdir(
        parents=True, exist_ok=True
    )
    (tmp_path / "notes.txt").write_text("mine")
    before = everything(tmp_path)

    module, part = {"before the first run": ("all_runs", "shared_world"), "when a run begins": ("one_run", "setup_of")}[
        moment
    ]
    monkeypatch.setattr(sys.modules[f"edgefl.experiment.{module}"], part, mistake)
    with pytest.raises(UserError, match="does not fit"):
        run(check(SMALL), out=folder)
    assert everything(tmp_path) == before


@pytest.mark.parametrize("error", [UserError("something does not fit"), OSError("no camera"), ValueError("odd")])
def test_an_error_of_a_listener_after_a_round_removes_nothing_and_the_run_can_be_resumed(small, tmp_path, error):
    class Failing(Listener):
        def round_ended(self, row):
            raise error

    scenario = small()
    run(scenario, out=tmp_path / "whole")
    with pytest.raises(Exception, match=str(error)):
        run(scenario, out=tmp_path / "run", listeners=[Failing()])
    resume(tmp_path / "run")
    assert tree(tmp_path / "run") == tree(tmp_path / "whole")


def test_a_mistake_found_after_a_round_removes_nothing_and_the_run_can_be_resumed(small, tmp_path):
    scenario = small()
    run(scenario, out=tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("edgefl.simulation.rounds.RoundBook._standing", late(RoundBook._standing))
        with pytest.raises(UserError, match="does not fit"):
            run(scenario, out=tmp_path / "run")
    resume(tmp_path / "run")
    assert tree(tmp_path / "run") == tree(tmp_path / "whole")


def late(called):
    """Makes a mistake in the third round."""

    def calling(book, round, *others):
        if round == 2:
            mistake()
        return called(book, round, *others)

    return calling


def test_what_a_stranger_puts_into_the_folder_meanwhile_survives_a_mistake(tmp_path, monkeypatch):
    folder = tmp_path / "run"

    def late_mistake(*_, **__):
        for place in (folder, folder / "fedavg", folder / "fedavg" / "seed-0"):
            (place / "notes.txt").write_text("mine")
        mistake()

    monkeypatch.setattr("edgefl.experiment.one_run.setup_of", late_mistake)
    with pytest.raises(UserError, match="does not fit"):
        run(check(SMALL), out=folder)
    assert tree(folder) == dict.fromkeys(
        ["fedavg/notes.txt", "fedavg/seed-0/notes.txt", "notes.txt"], b"mine"
    )  # fmt: skip


def test_a_second_process_is_refused_at_every_moment_of_the_first(tmp_path):
    """Also by its own mistakes it changes nothing of the first."""
    folder, refused = tmp_path / "run", []

    class Second(Listener):
        def _try(self):
            before = everything(folder)
            for begin in (lambda: run(check(SMALL), out=folder), lambda: resume(folder)):
                with pytest.raises(UserError) as refusal:
                    begin()
                refused.append(refusal.value.message)
            assert everything(folder) == before

        def began(self, runs, rounds):
            self._try()

        def round_ended(self, row):
            self._try()

        def run_ended(self, result):
            self._try()

    expected = tree(run(check(SMALL), out=tmp_path / "expected"))
    run(check(SMALL), out=folder, listeners=[Second()])
    assert tree(folder) == expected
    assert len(refused) == 2 * (1 + 4 + 1)
    assert set(refused) <= {
        "another process is working in this run directory",
        "already contains a run; choose another folder",
        "nothing to resume: its run is finished",
        "nothing to resume: it contains no interrupted run",
    }


def test_the_lock_that_was_opened_before_its_file_was_removed_holds_nothing(tmp_path, monkeypatch):
    """The second opens the file, the first removes it and lets go, a third makes a new one: one of the two holds it."""
    file = tmp_path / "folder" / LOCK
    first = FolderLock(file, make=True)
    flock, thirds = fcntl.flock, []

    def late(descriptor, operation):
        if not thirds:
            thirds.append(None)
            first.release()
            thirds.append(FolderLock(file, make=True))
        return flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(BlockingIOError):
        FolderLock(file, make=True)
    assert file.exists()
    thirds[1].release(made=True)
    assert list(file.parent.iterdir()) == []


@pytest.mark.parametrize("takers", [2, 8])
def test_of_many_at_once_one_at_a_time_holds_a_folder_that_comes_and_goes(tmp_path, takers):
    file = tmp_path / "a" / "folder" / LOCK
    holders, held, faults = [], [0], []

    def take():
        for _ in range(150):
            try:
                lock = FolderLock(file, make=True)
            except BlockingIOError:
                continue
            except FileNotFoundError as error:
                faults.append(error)
                return
            holders.append(1)
            if len(holders) > 1:
                faults.append("two at once")
            held[0] += 1
            holders.pop()
            lock.release(made=True)

    threads = [threading.Thread(target=take) for _ in range(takers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert held[0] >= 20
    assert not file.exists()


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("how", ["moved", "moved and another in its place", "removed"])
def test_a_run_whose_folder_is_moved_stops_and_goes_on_in_its_new_place(tmp_path, how, train):
    scenario, folder, elsewhere = (
        check({**SMALL, "training": {**SMALL["training"], "rounds": 13}}),
        tmp_path / "run",
        tmp_path / "elsewhere",
    )
    expected = tree(run(scenario, out=tmp_path / "expected", train=train))
    seen = []

    class Mover(Listener):
        def round_ended(self, row):
            seen.append(row.round)
            if row.round == 11:
                folder.rename(elsewhere)
                if how == "removed":
                    shutil.rmtree(elsewhere)
                if how == "moved and another in its place":
                    folder.mkdir()
                    (folder / "notes.txt").write_text("mine")

    with pytest.raises(RunMoved) as stopped:
        run(scenario, out=folder, listeners=[Mover()], train=train)
    assert seen[-1] == 11
    assert "stopped after round 12 of fedavg, seed 0" in str(stopped.value)
    if how == "moved and another in its place":
        assert tree(folder) == {"notes.txt": b"mine"}
    else:
        assert not folder.exists()
    if how == "removed":
        assert "was moved or removed" in str(stopped.value)
        return
    assert f"edgefl simulate --resume {elsewhere}" in str(stopped.value)
    assert is_interrupted(elsewhere)
    assert tree(resume(elsewhere)) == expected
    assert verify(elsewhere) == []


def test_a_run_whose_own_folder_is_moved_stops_and_can_be_resumed(tmp_path):
    folder = tmp_path / "run"

    class Mover(Listener):
        def round_ended(self, row):
            if row.round == 2:
                (folder / "fedavg").rename(tmp_path / "elsewhere")

    with pytest.raises(EdgeflError, match="seed-0 was moved or removed; stopped after round 3"):
        run(check(SMALL), out=folder, listeners=[Mover()])
    assert tree(resume(folder)) == tree(run(check(SMALL), out=tmp_path / "expected"))


# Children are copies of a process that has imported everything and trained nothing: they start in no time.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["edgefl.api", "edgefl.experiment"])


def starting(begin, folder, ready, answers):
    ready.wait()
    try:
        begin(folder)
        answers.put("done")
    except UserError as error:
        answers.put(error.message)
    except Exception as error:  # noqa: BLE001  (told to the test)
        answers.put(f"{type(error).__name__}: {error}")


def fresh(folder):
    run(check(SMALL), out=folder, train=False)


def mistaken(folder):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("edgefl.experiment.one_run.setup_of", mistake)
        run(check(SMALL), out=folder, train=False)


PAIRS = {
    "two runs": (fresh, fresh),
    "a run and one with a mistake": (fresh, mistaken),
    "two resumptions": (resume, resume),
    "a resumption and a run": (resume, fresh),
}


REFUSALS = ("another process", "nothing to resume", "already contains", "an interrupted run", "something does not fit")


def pairs_lose_nothing(tmp_path: Path, count: int) -> None:
    expected = tree(run(check(SMALL), out=tmp_path / "expected", train=False))
    began = tmp_path / "began"
    interrupted(began, train=False)
    for number in range(count):
        what, pair = list(PAIRS.items())[number % len(PAIRS)]
        folder = tmp_path / f"run-{number}"
        if resume in pair:
            shutil.copytree(began, folder)
        ready, answers = CONTEXT.Barrier(2), CONTEXT.Queue()
        children = [CONTEXT.Process(target=starting, args=(begin, folder, ready, answers)) for begin in pair]
        for child in children:
            child.start()
        said = sorted(answers.get(timeout=120) for _ in children)
        for child in children:
            child.join()
        if said.count("done") == 0:  # the one with the mistake was first, and the other was refused meanwhile
            assert what == "a run and one with a mistake", said
            assert "something does not fit" in said
            assert not folder.exists() or list(folder.iterdir()) == []
        else:
            assert tree(folder) == expected, (what, said)
            assert all(each == "done" or each.startswith(REFUSALS) for each in said), said
            assert said.count("done") == 1 or what == "two resumptions", (what, said)


def test_pairs_of_simultaneous_starts_lose_nothing(tmp_path):
    pairs_lose_nothing(tmp_path, 4)


@pytest.mark.release
def test_a_hundred_pairs_of_simultaneous_starts_lose_nothing(tmp_path):
    pairs_lose_nothing(tmp_path, 100)


@pytest.mark.parametrize("reason", [errno.ENOLCK, errno.ENOTSUP])
def test_a_file_system_without_locks_is_refused_and_nothing_stays(small, tmp_path, monkeypatch, reason):
    def none(*arguments):
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr(fcntl, "flock", none)
    with pytest.raises(UserError, match="the run directory cannot be written"):
        run(small(), out=tmp_path / "new" / "run", train=False)
    assert not (tmp_path / "new").exists()


def test_a_run_ends_with_the_unfinished_files_of_others_in_its_folder(tmp_path):
    """A killed ``replay --out RUN/copy`` leaves a folder, another process may be writing a page now."""
    folder = tmp_path / "run"
    interrupted(folder)
    (aside(folder / "copy") / "fedavg").mkdir(parents=True)
    aside(folder / "page.html").write_text("half")
    aside(folder / "fedavg" / "seed-0" / "notes").write_text("half")
    left = [aside(folder / "summary.json"), aside(folder / "fedavg" / "seed-0" / "clients.parquet")]
    for path in left:
        path.write_text("half")
    resume(folder)
    assert verify(folder) == []
    assert not is_interrupted(folder)
    assert (aside(folder / "copy") / "fedavg").is_dir()
    assert aside(folder / "page.html").exists()
    assert aside(folder / "fedavg" / "seed-0" / "notes").exists()
    assert not any(path.exists() for path in left)


@pytest.mark.parametrize("name", ["summary.json", "costs.json", "fedavg/seed-0/events.parquet"])
def test_a_folder_in_the_place_of_an_unfinished_file_is_refused_before_anything_is_trained(tmp_path, name):
    folder = tmp_path / "run"
    interrupted(folder)
    aside(folder / name).unlink(missing_ok=True)
    aside(folder / name).mkdir()
    before = tree(folder)
    with pytest.raises(UserError, match="expected a file, found a folder"):
        resume(folder)
    assert tree(folder) == before
