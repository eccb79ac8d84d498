"""A run directory from anybody: no command follows a link in it, leaves it, waits for a pipe, or believes it."""

from __future__ import annotations

import copy
import itertools
import json
import os
import shutil
import signal
import sqlite3
from pathlib import Path

import pytest

from edgefl.cli import main
from edgefl.data.location import data_root
from edgefl.errors import UserError
from edgefl.experiment import RunsFailed, resume, run
from edgefl.record import names
from edgefl.record.listener import Listener
from edgefl.report import RunResult, write_pictures
from edgefl.rerun.sensitivity import write_sensitivity
from edgefl.scenario.loading import check

from ..small_runs import SMALL, Stop, tree

SECRET = "a line of somebody's private key"
TWINS = ["fedavg", {"method": "fedavg", "as": "twin"}]
LONG = {**SMALL, "methods": TWINS, "keep_models": "clients", "training": {**SMALL["training"], "rounds": 12}}


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    folder = run(check({**SMALL, "keep_models": "clients"}), out=tmp_path_factory.mktemp("finished") / "run")
    write_pictures(RunResult(folder))
    write_sensitivity(folder)
    return folder


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory) -> Path:
    """In the second method, whose first checkpoint is on disk, as a kill leaves it: with SQLite's own files."""
    folder = tmp_path_factory.mktemp("interrupted") / "run"
    with pytest.raises(KeyboardInterrupt):
        run(check(LONG), out=folder, listeners=[Stop(23)])
    for name in names.JOURNALS[1:]:
        (folder / "twin" / "seed-0" / name).touch()
    (folder / names.LOCK).touch()
    return folder


def link_to_a_file(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "key")


def link_to_a_folder(path: Path, outside: Path) -> None:
    path.symlink_to(outside)


def link_to_a_copy(path: Path, outside: Path) -> None:
    """What lies there is sound, and somebody else's."""
    path.symlink_to(outside / "sound")


def link_to_nothing(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "new")


def hard_link(path: Path, outside: Path) -> None:
    os.link(outside / "key", path)


def pipe(path: Path, outside: Path) -> None:
    os.mkfifo(path)


def folder_or_file(path: Path, outside: Path) -> None:
    if (outside / "sound").is_dir():
        path.write_text("no folder")
    else:
        path.mkdir()
        (path / "inside").write_text("no file")


KINDS = [link_to_a_file, link_to_a_folder, link_to_a_copy, link_to_nothing, hard_link, pipe, folder_or_file]


def planted(source: Path, name: str, kind, tmp_path: Path) -> tuple[Path, Path]:
    """A copy of the run directory with something else in place of one of its entries, and the folder outside."""
    folder, outside = tmp_path / "received", tmp_path / "outside"
    shutil.copytree(source, folder)
    outside.mkdir()
    (outside / "key").write_text(SECRET)
    (outside / "precious").mkdir()
    (outside / "precious" / "thesis.tex").write_text("years of work")
    path = folder / name
    if path.exists():
        shutil.move(path, outside / "sound")
    kind(path, outside)
    return folder, outside


@pytest.fixture
def _in_time():
    """A reader that waits for the other end of a pipe is interrupted."""

    def late(*_):
        raise TimeoutError("it waits for ever")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


COMMANDS = {
    "report": ["report", "RUN"],
    "page": ["report", "RUN", "--html", "OUT/page.html"],
    "verify": ["verify", "RUN"],
    "timeline": ["timeline", "RUN", "--method", "fedavg", "-o", "OUT/trace.json"],
    "diagnose": ["diagnose", "RUN", "--batches", "1"],
    "replay": ["replay", "RUN", "-o", "OUT/replayed"],
    "sensitivity": ["replay", "RUN", "--sensitivity"],
    "resume": ["simulate", "--resume", "RUN"],
}
FINISHED = [
    *(names.SUMMARY, names.SCENARIO, names.COSTS, names.SENSITIVITY, names.STATE, names.FAULTED, "fedavg"),
    *("fedavg/seed-0", *(f"fedavg/seed-0/{name}" for name in (names.EVENTS, names.ROUNDS, names.FINAL_MODEL))),
    f"fedavg/seed-0/{names.CLIENT_MODELS}",
]
READ = list(itertools.product(COMMANDS, FINISHED, KINDS))
READERS = dict(zip(FINISHED, [
    *("report", "page", "verify", "sensitivity", "resume", "resume"),
    *("page", "report", "timeline", "page", "diagnose", "replay"),
], strict=True))  # fmt: skip
"""A command that reads it, for each."""
COVERING = list(zip(READERS.values(), READERS, itertools.cycle(KINDS[4::-1] + KINDS[:4:-1])))
"""Cases in which each command, each file and each kind occurs; a replay could copy the content that a link leads to."""


def reads_nothing_outside(finished, tmp_path, capsys, command, name, kind):
    folder, outside = planted(finished, name, kind, tmp_path)
    before, out = tree(outside), tmp_path / "out"
    out.mkdir()
    words = [word.replace("RUN", str(folder)).replace("OUT", str(out)) for word in COMMANDS[command]]
    code = main(words)
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    assert code in (0, 1, 2)
    assert "fault:" not in said.err or command == "verify"
    assert tree(outside) == before, "something outside was changed"
    assert not any(SECRET.encode() in content for content in tree(out).values())
    # A hard link is read as the file that it is, and a message about it may quote it to who runs the command.
    assert kind is hard_link or SECRET not in said.out + said.err


@pytest.mark.usefixtures("_in_time")
@pytest.mark.parametrize(("command", "name", "kind"), COVERING)
def test_a_command_on_a_received_directory_stays_in_it(finished, tmp_path, capsys, command, name, kind):
    reads_nothing_outside(finished, tmp_path, capsys, command, name, kind)


def test_every_command_file_and_kind_is_tried():
    assert list(map(set, zip(*COVERING, strict=True))) == [set(COMMANDS), set(FINISHED), set(KINDS)]


@pytest.mark.slow
@pytest.mark.usefixtures("_in_time")
@pytest.mark.parametrize(("command", "name", "kind"), READ)
def test_every_command_on_every_received_directory_stays_in_it(finished, tmp_path, capsys, command, name, kind):
    reads_nothing_outside(finished, tmp_path, capsys, command, name, kind)


READS = {
    "page": [names.SUMMARY, names.SCENARIO, f"fedavg/seed-0/{names.ROUNDS}", "fedavg", "fedavg/seed-0"],
    "verify": [names.SUMMARY, names.SCENARIO, names.COSTS, f"fedavg/seed-0/{names.EVENTS}", names.SENSITIVITY],
    "diagnose": [f"fedavg/seed-0/{names.FINAL_MODEL}", f"fedavg/seed-0/{names.CLIENT_MODELS}"],
    "replay": [names.COSTS, f"fedavg/seed-0/{names.FINAL_MODEL}", f"fedavg/seed-0/{names.CLIENT_MODELS}", "fedavg"],
    "timeline": [f"fedavg/seed-0/{names.EVENTS}"],
    "sensitivity": [names.SENSITIVITY],
}


@pytest.mark.usefixtures("_in_time")
@pytest.mark.parametrize("kind", [link_to_a_copy, pipe])
@pytest.mark.parametrize(("command", "name"), [(command, name) for command in READS for name in READS[command]])
def test_it_says_what_lies_there_in_one_message(finished, tmp_path, capsys, command, name, kind):
    folder, _ = planted(finished, name, kind, tmp_path)
    words = [word.replace("RUN", str(folder)).replace("OUT", str(tmp_path)) for word in COMMANDS[command]]
    assert main(words) == 2
    message = capsys.readouterr().err
    found = "a symbolic link" if kind is link_to_a_copy else "a named pipe"
    assert message.startswith(f"error: {folder / name}: expected a ")
    assert f"found {found}" in message
    assert message.count("\n") == 1
    assert not (tmp_path / "replayed").exists()


def under_way(interrupted: Path) -> list[str]:
    inside = [f"twin/seed-0/{name}" for name in (names.EVENTS, names.CHECKPOINTS, *names.JOURNALS)]
    checkpoints = sorted(path.name for path in (interrupted / "twin/seed-0/checkpoints").iterdir())
    return [
        *(names.STATE, names.SCENARIO, names.LOCK, names.RESULTS, names.SUMMARY, names.COSTS, "twin", "twin/seed-0"),
        *(*inside, *(f"twin/seed-0/checkpoints/{name}" for name in checkpoints)),
        *(f"results/seed-0/{sorted(os.listdir(interrupted / 'results/seed-0'))[0]}", "results/seed-0"),
        *(f"twin/seed-0/{name}" for name in (names.ROUNDS, names.FINAL_MODEL, names.STANDINGS)),
    ]


PLACES = 21


def kept(folder: Path) -> dict[str, bytes]:
    """The files without those that a process which opens the folder and its journal may renew or remove."""
    passing = (names.LOCK, *names.JOURNALS[1:])
    return {name: content for name, content in tree(folder).items() if not name.endswith(passing)}


def resumes_nothing_outside(interrupted, tmp_path, place, kind):
    name = under_way(interrupted)[place]
    folder, outside = planted(interrupted, name, kind, tmp_path)
    before, held = tree(outside), kept(folder)
    with pytest.raises(UserError) as refusal:
        resume(folder)
    assert "\n" not in str(refusal.value)
    assert tree(outside) == before
    assert kept(folder) == held


def test_every_place_is_tried(interrupted):
    assert len(under_way(interrupted)) == PLACES


ATTACKS = list(itertools.product(range(PLACES), KINDS))


@pytest.mark.usefixtures("_in_time")
@pytest.mark.parametrize(("place", "kind"), ATTACKS[::4])
def test_a_resumption_refuses_what_is_not_the_runs_own(interrupted, tmp_path, place, kind):
    resumes_nothing_outside(interrupted, tmp_path, place, kind)


@pytest.mark.slow
@pytest.mark.usefixtures("_in_time")
@pytest.mark.parametrize(("place", "kind"), ATTACKS)
def test_a_resumption_refuses_whatever_is_not_the_runs_own(interrupted, tmp_path, place, kind):
    resumes_nothing_outside(interrupted, tmp_path, place, kind)


def test_what_lies_beside_edgefls_own_files_is_no_obstacle(interrupted, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(interrupted, folder)
    (folder / "notes").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    resume(folder)
    assert (folder / "notes").is_symlink()


def run_of(state: dict) -> dict:
    return state["finished"][0]


FORGERIES = {
    "a label of nobody": lambda state: run_of(state).update(label="fedprox"),
    "a seed of another run": lambda state: [each.update(seed=7) for each in (run_of(state), run_of(state)["entry"])],
    "a seed that is not the entry's": lambda state: run_of(state)["entry"].update(seed=1),
    "a run that stands twice": lambda state: state["finished"].append(run_of(state)),
    "a fault without a message": lambda state: run_of(state)["entry"]["stop"].update(reason="fault"),
    "an accuracy of seven": lambda state: run_of(state)["entry"]["accuracy"].update(final=7.0),
    "a figure that is no number": lambda state: run_of(state)["entry"].update(seconds=float("nan")),
    "costs of no batch": lambda state: run_of(state).update(costs=[[4, 0]]),
    "costs of a larger batch": lambda state: run_of(state).update(costs=[[4, 17]]),
    "costs of more blocks": lambda state: run_of(state).update(costs=[[5, 16]]),
    "a method of nobody": lambda state: state["choices"].update(methods=["fedavg", "fedprox"]),
    "a method twice": lambda state: state["choices"].update(methods=["fedavg", "fedavg"]),
    "no method": lambda state: state["choices"].update(methods=[]),
    "a device of nobody": lambda state: state["choices"].update(device="/dev/sda"),
    "another version": lambda state: state.update(edgefl="9.9"),
}


FORGED = [(names.STATE, each) for each in FORGERIES] + [(names.FAULTED, each) for each in [*FORGERIES][::5]]


@pytest.mark.parametrize(("file", "forgery"), FORGED)
def test_a_forged_state_is_refused_with_one_message_and_nothing_is_touched(interrupted, tmp_path, forgery, file):
    folder = tmp_path / "run"
    shutil.copytree(interrupted, folder)
    (tmp_path / "elsewhere" / "seed-0" / "checkpoints").mkdir(parents=True)
    (tmp_path / "elsewhere" / "seed-0" / "journal.sqlite").write_text("somebody else's")
    state = json.loads((folder / names.STATE).read_text())
    FORGERIES[forgery](state)
    (folder / names.STATE).unlink()
    (folder / file).write_text(json.dumps(state))
    (folder / names.LOCK).unlink()
    before = tree(tmp_path)
    with pytest.raises(UserError) as refusal:
        resume(folder)
    message = str(refusal.value)
    assert message.startswith(str(folder))
    assert any(part in message for part in ("cannot be resumed", "only the same version", "found a path"))
    assert tree(tmp_path) == before


def places(data, path=()):
    """Every key and every item of plain data, at any depth."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


BEYOND = "a number beyond all"
VALUES = {
    "nothing": None,
    "truth": True,
    "a list": ["../elsewhere"],
    "a mapping": {"../elsewhere": 1},
    "a path": "../elsewhere",
    "a negative number": -1,
    "a fraction": 0.5,
    "the largest number": 2**63 - 1,
    "a number too large": BEYOND,
}
SHARES = {"final", "best", "ema"}
RATIO = "ratio_to_optimum"
AMOUNTS = {"seconds", "flops", "joules", "exposed_seconds", "hidden_seconds", RATIO}
MAY_LACK = {"by_fate", "targets", "budgets", "message", *SHARES}


def possible(state, place, forgery):
    """Whether a state may hold this: a figure of a finished run, which ``verify`` compares with the log, or less."""
    *_, before, last = ("", *place)
    if forgery == "removed" and (last in ("cache", "emulated") or (isinstance(last, int) and isinstance(before, str))):
        return place != ("choices", "methods", 0)  # it has a finished run
    if forgery == "removed" and "costs" in place[-3:] and last == 2:
        return True  # the capacity level, which older versions did not write
    value, of_a_run = part_at(state, place), "entry" in place and last != "seed"
    share, amount = last in SHARES, last in AMOUNTS
    count = isinstance(value, int) and not isinstance(value, bool)
    optional = last in {*SHARES, RATIO} or (before == 0 and last != "accuracy" and (amount or count))
    return of_a_run and {
        "nothing": optional,
        "a fraction": share or amount,
        "the largest number": amount or count,
        "a mapping": last == "accuracy" and isinstance(value, dict),
        "removed": optional or last in MAY_LACK or before == "by_fate" or place[-2:] == ("entry", "metric"),
        "a key more": isinstance(value, dict) and last != "by_fate",
    }.get(forgery, False)


class BegunError(Exception):
    """The state was accepted."""


class Ask(Listener):
    """Ends a run that is about to go on."""

    def began(self, runs, rounds):
        raise BegunError


def forged(state, place, forgery):
    """The state with another value at one place, as JSON text, or with a key more, or one fewer."""
    state = copy.deepcopy(state)
    part = state
    for key in place[:-1]:
        part = part[key]
    if forgery == "removed":
        del part[place[-1]]
    elif forgery == "a key more":
        part[place[-1]]["script"] = "rm -r"
    else:
        part[place[-1]] = copy.deepcopy(VALUES[forgery])
    return json.dumps(state).replace(f'"{BEYOND}"', "1" + "0" * 400)


@pytest.mark.parametrize("forgery", [*VALUES, "removed", "a key more"])
def test_no_place_of_a_state_takes_another_value(interrupted, tmp_path, forgery):
    folder = tmp_path / "run"
    shutil.copytree(interrupted, folder)
    (tmp_path / "elsewhere" / "seed-0" / "checkpoints").mkdir(parents=True)
    (folder / names.LOCK).unlink()
    file, before = folder / names.STATE, tree(tmp_path)
    state = json.loads(file.read_text())
    tried = [place for place in places(state) if forgery != "a key more" or isinstance(part_at(state, place), dict)]
    accepted = []
    for place in tried:
        text = forged(state, place, forgery)
        if text == json.dumps(state):
            continue
        file.write_text(text)
        try:
            with pytest.raises(UserError) as refusal:
                resume(folder, listeners=[Ask()])
        except BegunError:
            accepted.append(place)
            continue
        assert str(refusal.value).startswith((str(folder), str(data_root(None)))), place
        assert file.read_text() == text
    file.write_bytes(before[f"run/{names.STATE}"])
    assert tree(tmp_path) == before
    assert set(accepted) ^ {place for place in tried if possible(state, place, forgery)} == set()


def part_at(data, place):
    for key in place:
        data = data[key]
    return data


@pytest.mark.parametrize("name", [names.EVENTS, names.ROUNDS, names.FINAL_MODEL, names.CLIENT_MODELS, "*"])
def test_a_file_of_a_finished_run_that_is_missing_is_noticed_before_anything_is_trained(interrupted, tmp_path, name):
    folder = tmp_path / "run"
    shutil.copytree(interrupted, folder)
    for path in (folder / "fedavg/seed-0").glob(name):
        path.unlink()
    before = kept(folder)
    with pytest.raises(UserError, match="this file of a finished run is missing"):
        resume(folder)
    assert kept(folder) == before


@pytest.mark.parametrize("field", ["scenario", "data", None])
def test_a_state_without_a_digest_of_an_input_is_refused(interrupted, tmp_path, field):
    folder = tmp_path / "run"
    shutil.copytree(interrupted, folder)
    state = json.loads((folder / names.STATE).read_text())
    state["inputs"] = {key: value for key, value in state["inputs"].items() if field not in (None, key)}
    (folder / names.STATE).write_text(json.dumps(state))
    before = kept(folder)
    with pytest.raises(UserError, match="no digest of it"):
        resume(folder)
    assert kept(folder) == before


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "3", "[" * 100_000, "\0", '{"edgefl": "\\ud800"}', "é"])
def test_a_state_that_is_none_is_refused(interrupted, tmp_path, content):
    folder = tmp_path / "run"
    shutil.copytree(interrupted, folder)
    (folder / names.STATE).write_bytes(content.encode("latin-1"))
    with pytest.raises(UserError, match=r"cannot be resumed|only the same version"):
        resume(folder)


def test_a_journal_that_names_a_checkpoint_elsewhere_is_refused(interrupted, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(interrupted, folder)
    for name in names.JOURNALS[1:]:
        (folder / "twin/seed-0" / name).unlink()
    journal = sqlite3.connect(folder / "twin/seed-0/journal.sqlite")
    journal.execute("UPDATE manifests SET manifest = '../../../outside/' || manifest")
    journal.commit()
    journal.close()
    with pytest.raises(UserError, match="found a path"):
        resume(folder)


@pytest.mark.parametrize("command", ["report", "verify", "replay"])
@pytest.mark.parametrize("label", ["../outside", "/etc", "..", "", "a\\b", "x" * 300])
def test_a_summary_whose_label_leads_out_is_refused(finished, tmp_path, capsys, command, label):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    summary = json.loads((folder / names.SUMMARY).read_text())
    summary["methods"] = {label: summary["methods"]["fedavg"]}
    (folder / names.SUMMARY).write_text(json.dumps(summary))
    words = [word.replace("RUN", str(folder)).replace("OUT", str(tmp_path)) for word in COMMANDS[command]]
    assert main(words) in ((0, 2) if command == "report" and len(label) > 2 else (1, 2))
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    assert "fault: " not in said.err or command == "verify"


def test_a_faulted_directory_is_looked_at_like_an_unfinished_one(tmp_path, monkeypatch):
    from edgefl.methods.servers.mean import Mean

    def broken(*arguments, **options):
        raise ValueError("broken")

    folder, outside = tmp_path / "run", tmp_path / "outside"
    with monkeypatch.context() as breaking:
        breaking.setattr(Mean, "update", broken)
        with pytest.raises(RunsFailed):
            run(check(copy.deepcopy(SMALL)), out=folder)
    outside.mkdir()
    (outside / "key").write_text(SECRET)
    path = folder / "fedavg/seed-0" / names.EVENTS
    path.unlink()
    path.symlink_to(outside / "key")
    before = tree(folder)
    with pytest.raises(UserError, match="a symbolic link"):
        resume(folder)
    assert tree(outside) == {"key": SECRET.encode()}
    assert tree(folder) == before
