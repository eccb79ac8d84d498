"""A run that was killed goes on to the same bytes as one that was not."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from edgefl.errors import UserError
from edgefl.experiment import is_interrupted, resume, run
from edgefl.experiment.directory import RunDirectory
from edgefl.experiment.journal import LogDiffers, packed, unpacked
from edgefl.experiment.state import Choices
from edgefl.rerun.verify import verify

from ..small_runs import CELLS, SMALL, Stop, tree

METHODS = ["fedavg", {"method": "fedadc", "overlap": True}, "fedbr", "scaffold"]
PROTOCOLS = {
    "synchronous": {"kind": "synchronous"},
    "deadline": {"kind": "synchronous", "deadline": 0.08},
    "asynchronous": {"kind": "asynchronous", "buffer": 2, "concurrency": 4},
}


def methods_for(protocol: str) -> list:
    return ["fedavg", "fedbr"] if protocol == "asynchronous" else METHODS


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The same runs without any interruption, by protocol."""
    from edgefl.scenario.loading import check

    def finished(protocol):
        data = {**SMALL, "methods": methods_for(protocol), "protocol": PROTOCOLS[protocol], "seeds": [0, 1]}
        data["training"] = {**SMALL["training"], "rounds": 13}
        scenario = check(data)
        return scenario, run(scenario, out=tmp_path_factory.mktemp(protocol) / "run")

    return {protocol: finished(protocol) for protocol in PROTOCOLS}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("after", [1, 9, 11, 25, 37])
def test_a_resumed_run_is_byte_identical(uninterrupted, tmp_path, protocol, after):
    scenario, expected = uninterrupted[protocol]
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run(scenario, out=folder, listeners=[Stop(after)])
    assert is_interrupted(folder)
    # Twice: the second process is interrupted as well, two rounds later.
    with pytest.raises(KeyboardInterrupt):
        resume(folder, listeners=[Stop(2)])
    assert tree(resume(folder)) == tree(expected)
    assert verify(folder) == []


@pytest.fixture
def trained(monkeypatch) -> list[int]:
    """The versions of the model that training went on from, as it goes."""
    from edgefl.training import learner

    versions: list[int] = []
    train = learner.MethodLearner.aggregate
    monkeypatch.setattr(
        learner.MethodLearner, "aggregate", lambda self, v, *rest: (versions.append(v), train(self, v, *rest))[1]
    )
    return versions


def test_up_to_the_checkpoint_nothing_is_trained_again(small, tmp_path, trained):
    scenario = small(training__rounds=13)
    with pytest.raises(KeyboardInterrupt):
        run(scenario, out=tmp_path / "run", listeners=[Stop(12)])
    trained.clear()
    resume(tmp_path / "run")
    assert trained == [10, 11, 12]


def test_a_damaged_checkpoint_falls_back_to_an_older_one_or_to_none(uninterrupted, tmp_path):
    scenario, expected = uninterrupted["synchronous"]
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run(scenario, out=folder, listeners=[Stop(12)])
    blobs = list(folder.rglob("checkpoints/*.safetensors"))
    assert blobs
    for path in blobs:
        path.write_bytes(path.read_bytes()[:-3])
    assert tree(resume(folder)) == tree(expected)


def test_what_is_written_after_a_damage_does_not_build_on_what_is_damaged(small, tmp_path, trained):
    scenario = small(training__rounds=23, methods=["scaffold"])
    expected = run(scenario, out=tmp_path / "expected")
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run(scenario, out=folder, listeners=[Stop(22)])
    for path in folder.rglob("checkpoints/pack-*"):
        spoilt = bytearray(path.read_bytes())
        spoilt[-1] ^= 1
        path.write_bytes(spoilt)
    trained.clear()
    with pytest.raises(KeyboardInterrupt):
        resume(folder, listeners=[Stop(12)])
    assert trained == list(range(12)), "no checkpoint was of use"
    trained.clear()
    assert tree(resume(folder)) == tree(expected)
    assert trained == list(range(10, 23)), "the one that was written since then is"


def test_a_journal_that_differs_stops_the_run(small, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(small(training__rounds=13), out=tmp_path / "run", listeners=[Stop(12)])
    journal = sqlite3.connect(tmp_path / "run/fedavg/seed-0/journal.sqlite")
    rows = unpacked(*journal.execute("SELECT figures, words FROM events WHERE position = 0").fetchone())
    rows[20] = rows[20]._replace(time=rows[20].time + 1.0)
    journal.execute("UPDATE events SET figures = ?, words = ? WHERE position = 0", packed(rows))
    journal.commit()
    journal.close()
    with pytest.raises(LogDiffers, match="event 20"):
        resume(tmp_path / "run")


def test_a_finished_run_cannot_be_resumed_and_an_empty_folder_neither(small, tmp_path):
    folder = run(small(), out=tmp_path / "run", train=False)
    with pytest.raises(UserError, match="finished"):
        resume(folder)
    with pytest.raises(UserError, match="nothing to resume"):
        resume(tmp_path)


def test_two_processes_do_not_share_a_directory(small, tmp_path):
    scenario = small()
    with RunDirectory(tmp_path / "run", Choices(methods=("fedavg",), device="auto", train=True)) as taken:
        taken.open(scenario)
        with pytest.raises(UserError, match="another process"):
            run(scenario, out=tmp_path / "run")
        assert is_interrupted(tmp_path / "run")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "import sys; from edgefl.cli import main; sys.exit(main())", *arguments]


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_process_can_be_resumed_from_the_command_line(uninterrupted, tmp_path, stop):
    _, expected = uninterrupted["synchronous"]
    folder = tmp_path / "run"
    scenario = str(expected / "scenario.yaml")
    with subprocess.Popen(
        command("simulate", scenario, "--out", str(folder)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        waited = time.monotonic() + 120
        while not list(folder.rglob("checkpoints/round-*.json")) and time.monotonic() < waited:
            time.sleep(0.01)
        process.send_signal(stop)
        said = process.communicate()[1]
    assert process.returncode == (-stop if stop == signal.SIGKILL else 128 + stop)
    if stop != signal.SIGKILL:
        assert f"edgefl simulate --resume {folder}" in said
    again = subprocess.run(
        command("simulate", scenario, "--out", str(folder)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 2
    assert "--resume" in again.stderr
    done = subprocess.run(
        command("simulate", "--resume", str(folder), "--json"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found, wanted = tree(folder), tree(expected)
    found.pop("accuracy.png")
    assert found == wanted
    assert done.stdout == wanted["summary.json"].decode()


CALIBRATION = {"kind": "calibration", "epochs": 2, "lr": 0.1, "proximal": 0.01, "self_confidence": True}
KEPT = {"evaluation": {"ensemble": {"decay": 0.8}, "every": 2}, "keep_models": "clients"}
PERSONAL = {"data__test": "partitioned", "data__test_images": 80, "personalisation": CALIBRATION}
PARTIAL = {"protocol": {"deadline": "80 ms", "late": "partial", "over_select": 1.4}, "training__selection": "oort"}
OORT = {"protocol": {"kind": "asynchronous", "buffer": 2, "concurrency": 4}, "training__selection": "oort"}
MORE = {
    "ensembles and every client's model": {**KEPT, "methods": ["fedavg", "scaffold"]},
    "personalisation": {**PERSONAL, "methods": ["fedadc"]},
    "partial work and oort selection": {**PARTIAL, **KEPT, "methods": ["fednova", "moon"]},
    "asynchronous, oort selection": {**OORT, **KEPT, "methods": ["fedavg", "scaffold"]},
    "losses that clients are asked for": {
        "training__selection": {"kind": "power_of_choice", "images": 20},
        **KEPT,
        "methods": ["fedavg", "scaffold"],
    },
    "tiers": {"training__selection": {"kind": "tifl", "tiers": 3, "interval": 2}, "methods": ["fedavg", "fedbr"]},
    "least available": {"training__selection": {"kind": "refl", "rest": 1}, "methods": ["fedavg"]},
    "utility and batteries": {"training__selection": "eafl", "methods": ["moon"]},
    "hierarchical": {
        "protocol": {"kind": "hierarchical"},
        "network__topology": CELLS,
        **KEPT,
        "methods": ["fedbr", "feddyn"],
    },
}


@pytest.fixture(scope="module")
def expected_of() -> dict[str, dict[str, bytes]]:
    """What each of these worlds comes to without an interruption, once it is known."""
    return {}


@pytest.mark.parametrize("world", MORE)
@pytest.mark.parametrize("after", [6, 12, 24])
def test_whatever_a_run_keeps_is_byte_identical_after_a_resumption(small, tmp_path, expected_of, world, after):
    """Before the first checkpoint, after it, and in the second method (where there is one)."""
    scenario = small(**MORE[world], training__rounds=13)
    if world not in expected_of:
        expected_of[world] = tree(run(scenario, out=tmp_path / "expected"))
    folder, wanted = tmp_path / "run", expected_of[world]
    after = min(after, 13 * len(MORE[world]["methods"]) - 1)
    with pytest.raises(KeyboardInterrupt):
        run(scenario, out=folder, listeners=[Stop(after)])
    found = tree(resume(folder))
    assert sorted(found) == sorted(wanted)
    assert [name for name in wanted if found[name] != wanted[name]] == []
    assert verify(folder) == []
