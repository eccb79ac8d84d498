"""A journal or checkpoint with other contents than edgefl writes: one message, never a hang, and nothing is trained."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from array import array
from contextlib import closing, suppress
from pathlib import Path

import pytest

from edgefl.errors import UserError
from edgefl.experiment import resume, run
from edgefl.experiment.checkpoints import CheckpointDamaged, read_checkpoint
from edgefl.experiment.faults import NotWritten
from edgefl.experiment.journal import Journal, packed
from edgefl.record import names
from edgefl.record.events import Event
from edgefl.scenario.loading import check

from ..small_runs import SMALL, Stop, tree

LONG = {**SMALL, "training": {**SMALL["training"], "rounds": 12}}


@pytest.fixture(scope="module")
def scenario():
    return check(LONG)


@pytest.fixture(scope="module")
def expected(scenario, tmp_path_factory) -> dict[str, bytes]:
    return tree(run(scenario, out=tmp_path_factory.mktemp("expected") / "run"))


@pytest.fixture(scope="module")
def interrupted(scenario, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("interrupted") / "run"
    with pytest.raises(KeyboardInterrupt):
        run(scenario, out=folder, listeners=[Stop(11)])
    assert (folder / "fedavg/seed-0" / names.CHECKPOINTS).is_dir()
    return folder


@pytest.fixture
def received(interrupted, tmp_path) -> Path:
    return Path(shutil.copytree(interrupted, tmp_path / "run"))


def journal_of(folder: Path) -> Path:
    return folder / "fedavg/seed-0" / names.JOURNAL


def changed(folder: Path, *statements: str) -> None:
    with closing(sqlite3.connect(journal_of(folder), isolation_level=None)) as file:
        file.create_function("details", 3, with_details)
        for statement in statements:
            file.execute(statement)


def details(kind: str, detail: str) -> str:
    """Replaces the details of all rows of a kind."""
    return f"UPDATE events SET words = details(words, '{kind}', '{detail}')"


def with_details(words: str, kind: str, detail: str) -> str:
    kinds, *others, old = json.loads(words)
    return json.dumps([kinds, *others, [detail if each == kind else was for each, was in zip(kinds, old, strict=True)]])


NOT_FINITE = array("d", [float("nan")] * 100 * (len(Event._fields) - 5)).tobytes().hex()
FORGERIES = {
    "groups without rows": ["UPDATE events SET figures = x'', words = '[[], [], [], [], []]'"],
    "figures cut short": ["UPDATE events SET figures = substr(figures, 1, 100)"],
    "figures of a text": ["UPDATE events SET figures = 'many'"],
    "figures that are not finite": [f"UPDATE events SET figures = x'{NOT_FINITE}'"],
    "words that are no JSON": ["UPDATE events SET words = '['"],
    "words that are a number": ["UPDATE events SET words = 7"],
    "words that are not text": ["UPDATE events SET words = '[[1], [1], [1], [1], [1]]'"],
    "words nested deeply": ["UPDATE events SET words = '" + "[" * 100_000 + "'"],
    "words that are no UTF-8": ["UPDATE events SET words = CAST(x'ff' AS TEXT)"],
    "no events": ["DELETE FROM events"],
    "a group missing": ["DELETE FROM events WHERE position > 0"],
    "a huge count": [f"UPDATE rounds SET events = {2**62}"],
    "a count that is a text": ["UPDATE rounds SET events = 'all'"],
    "a count that is no whole number": ["UPDATE rounds SET events = 1e300"],
    "feedback that is no JSON": [details("feedback", "{")],
    "feedback that is a list": [details("feedback", "[1]")],
    "feedback nested deeply": [details("feedback", '{"a":' * 100_000)],
    "feedback that is text": [details("feedback", '{"loss": "many"}')],
    "feedback that is null": [details("feedback", "null")],
    "feedback with other numbers": [details("feedback", '{"width": 1.0}')],
    "an evaluation without numbers": [details("evaluation", "{}")],
    "an aggregation without clients": [details("aggregation", "{}")],
    "a manifest that is a number": ["UPDATE manifests SET manifest = x'00'"],
    "no table of rounds": ["DROP TABLE rounds"],
    "other tables": [
        *("DROP TABLE events", "DROP TABLE rounds", "DROP TABLE manifests"),
        "CREATE TABLE a (b)",
    ],
    "a table more": ["CREATE TABLE more (a)"],
    "a table of other columns": ["DROP TABLE manifests", "CREATE TABLE manifests (a)"],
    "an index": ["CREATE INDEX i ON rounds (events)"],
    "a trigger": ["CREATE TRIGGER t AFTER INSERT ON rounds BEGIN DELETE FROM events; END"],
    "a view that never ends": [
        "DROP TABLE rounds",
        "CREATE VIEW rounds AS WITH RECURSIVE n(events) AS (SELECT 1 UNION ALL SELECT 1 FROM n) SELECT * FROM n",
    ],
}  # fmt: skip


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_damaged_journal_is_refused_with_one_sentence(received, forgery):
    changed(received, *FORGERIES[forgery])
    with pytest.raises(UserError, match="journal damaged") as refused:
        resume(received)
    assert str(refused.value).startswith(f"{journal_of(received)}: journal damaged (")
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400
    assert (received / names.STATE).is_file()


@pytest.mark.parametrize("where", [0, 0.3, 0.6])
def test_a_journal_of_other_bytes_is_refused_or_makes_no_difference(received, expected, where):
    path = journal_of(received)
    content = bytearray(path.read_bytes())
    start = int(where * len(content))
    content[start : start + 3000] = b"\xa5" * 3000
    path.write_bytes(content)
    with suppress(UserError):  # pages that nobody reads, or that SQLite's own log replaces, make no difference
        resume(received)
        assert tree(received) == expected


def test_a_row_in_the_place_of_the_next_one_is_damage_and_no_full_disk(tmp_path):
    event = Event(0.5, "idle")
    with Journal(tmp_path / "journal.sqlite") as journal:
        journal._file.execute("INSERT INTO events VALUES (0, ?, ?)", packed([event]))
        journal.events([event])
        with pytest.raises(UserError, match=r"journal damaged \(UNIQUE"):
            journal.commit(1)


def test_a_disk_that_is_full_is_no_damage(received, monkeypatch):
    class Full(Journal):
        def _open(self):
            super()._open()
            self._file.execute("PRAGMA max_page_count=1")

    monkeypatch.setattr("edgefl.experiment.one_run.Journal", Full)
    with pytest.raises(NotWritten, match=r"disk is full; finished work is kept"):
        resume(received)


def forged_manifest(folder: Path, change) -> str:
    """Writes the newest manifest with other contents and their digest, and has the journal name it."""
    checkpoints = folder / "fedavg/seed-0" / names.CHECKPOINTS
    (old,) = checkpoints.glob("round-*")
    data = json.loads(old.read_bytes())
    text = json.dumps(change(data)).encode()
    name = f"{old.name.rpartition('-')[0]}-{hashlib.blake2b(text, digest_size=16).hexdigest()}.json"
    old.unlink()
    (checkpoints / name).write_bytes(text)
    changed(folder, f"UPDATE manifests SET manifest = '{name}'")
    return name


def without(key):
    return lambda data: {name: value for name, value in data.items() if name != key}


MANIFESTS = {
    "a list": lambda data: [data],
    "a number": lambda data: 7,
    "no packs": without("packs"),
    "no tensors": without("tensors"),
    "no facts": without("facts"),
    "packs that are a list": lambda data: {**data, "packs": ["a"]},
    "packs that are numbers": lambda data: {**data, "packs": dict.fromkeys(data["packs"], 7)},
    "contents without a pack": lambda data: {**data, "packs": {}},
    "another round": lambda data: {**data, "round": 20},
}


@pytest.mark.parametrize("forgery", MANIFESTS)
def test_a_manifest_of_other_contents_is_a_damaged_checkpoint(received, forgery):
    name = forged_manifest(received, MANIFESTS[forgery])
    with pytest.raises(CheckpointDamaged):
        read_checkpoint(received / "fedavg/seed-0" / names.CHECKPOINTS, name, round=10)


def test_without_a_sound_checkpoint_training_starts_from_the_first_round(received, expected):
    forged_manifest(received, MANIFESTS["no packs"])
    assert tree(resume(received)) == expected


def test_facts_that_a_learner_cannot_use_end_one_resumption_and_not_the_next(received, expected):
    forged_manifest(received, lambda data: {**data, "facts": {}})
    with pytest.raises(UserError, match="the checkpoint of round 10 is damaged"):
        resume(received)
    assert tree(resume(received)) == expected


def test_a_checkpoint_after_the_last_round_is_no_end(received):
    def later(data):
        return {**data, "round": 30}

    forged_manifest(received, later)
    changed(received, "UPDATE manifests SET round = 30")
    with pytest.raises(Exception, match="cannot be resumed"):
        resume(received)
    assert not (received / names.SUMMARY).exists()
