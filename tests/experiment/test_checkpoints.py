"""What a checkpoint writes, what it leaves to the last one, and what a kill leaves of both and of the journal."""

from __future__ import annotations

import threading

import pytest
import torch

from edgefl.errors import UserError
from edgefl.experiment import checkpoints
from edgefl.experiment.checkpoints import Checkpoints
from edgefl.experiment.journal import Journal, LogDiffers
from edgefl.files import write_file
from edgefl.record.events import Event


def states(numbers: dict[int, float]) -> dict[str, torch.Tensor]:
    return {f"state/{number}/{name}": torch.full((100,), v) for number, v in numbers.items() for name in ("h", "v")}


def files(folder):
    return {path.name: path.stat().st_ino for path in folder.iterdir()}


def test_a_clients_state_is_one_file_that_is_written_only_when_it_changed(tmp_path):
    before = states({0: 0.5, 1: 1.5, 2: 2.5})
    with Checkpoints(tmp_path) as writer:
        writer.begin(10, {"latest": torch.zeros(3), **before}, {"picked": [0]})
        writer.finish()
        first = files(tmp_path)
        assert len(first) == 5
        # The second client was picked; the first is not needed any more, so the third has another number now.
        kept = {name.replace("/2/", "/1/"): each for name, each in before.items() if name.startswith("state/2/")}
        now = {"latest": torch.ones(3), **states({0: 7.0}), **kept}
        writer.begin(20, now, {"picked": [1]})
        writer.begin(30, now, {"picked": []})
    second = files(tmp_path)
    assert sorted(second) == [
        "round-000010-state-2.safetensors", "round-000020-latest.safetensors", "round-000020-state-0.safetensors",
        "round-000020.json", "round-000030.json",
    ]  # fmt: skip
    assert second["round-000010-state-2.safetensors"] == first["round-000010-state-2.safetensors"]
    round, tensors, facts = Checkpoints(tmp_path).newest()
    assert (round, facts) == (30, {"picked": []})
    assert {name: tensor[0].item() for name, tensor in tensors.items()} == {
        "latest": 1.0, "state/0/h": 7.0, "state/0/v": 7.0, "state/1/h": 2.5, "state/1/v": 2.5,
    }  # fmt: skip


def test_views_and_equal_tensors_are_read_back_as_they_were(tmp_path):
    vector = torch.arange(6.0)
    tensors = {
        "server/whole": vector, "server/same": vector, "server/front": vector[:2], "server/matrix": vector.view(2, 3),
        "server/columns": vector.view(2, 3).t(), "state/0/half": vector.bfloat16(), "state/0/count": torch.tensor(7),
        "state/0/none": torch.zeros(0),
    }  # fmt: skip
    with Checkpoints(tmp_path) as writer:
        writer.begin(1, tensors, {})
    _, found, _ = Checkpoints(tmp_path).newest()
    assert list(found) == list(tensors)
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor), name


def test_a_checkpoint_without_its_manifest_does_not_exist_and_a_damaged_one_is_named(tmp_path):
    with Checkpoints(tmp_path) as writer:
        writer.begin(10, states({0: 1.0}), {})
        writer.finish()
        (tmp_path / "round-000020-state-0.safetensors").write_bytes(b"half")
        assert Checkpoints(tmp_path).newest()[0] == 10
    (tmp_path / "round-000010-state-0.safetensors").write_bytes(b"half")
    with pytest.raises(UserError, match=r"round-000010\.json: this checkpoint cannot be read"):
        Checkpoints(tmp_path).newest()


@pytest.fixture
def slow(monkeypatch):
    """A disk that writes once ``go_on`` is set, or raises the errors."""
    go_on, errors, write = threading.Event(), [], checkpoints.write_file

    def wait(*arguments):
        assert go_on.wait(30)
        if errors:
            raise errors.pop()
        write(*arguments)

    monkeypatch.setattr(checkpoints, "write_file", wait)
    return go_on, errors


def test_nothing_waits_for_a_checkpoint_and_an_error_of_it_is_raised_once(tmp_path, slow):
    go_on, errors = slow
    with Checkpoints(tmp_path) as writer:
        writer.begin(10, states({0: 1.0}), {})
        assert writer.newest() is None
        go_on.set()
        writer.finish()
        assert writer.newest()[0] == 10
        errors.append(OSError("full"))
        writer.begin(20, states({0: 2.0}), {})
        with pytest.raises(OSError, match="full"):
            writer.begin(30, states({0: 3.0}), {})
    assert Checkpoints(tmp_path).newest()[0] == 10


def test_a_tensor_that_is_changed_in_place_after_it_was_handed_over_is_named(tmp_path, monkeypatch):
    tensors, changed = states({0: 1.0}), threading.Event()
    monkeypatch.setattr(checkpoints, "write_file", lambda *given: changed.wait(60) and write_file(*given))

    def write() -> None:
        with Checkpoints(tmp_path) as writer:
            writer.begin(10, tensors, {})
            tensors["state/0/v"].add_(1.0)
            changed.set()

    with pytest.raises(RuntimeError, match="'state/0/v' was changed in place after round 10"):
        write()
    assert Checkpoints(tmp_path).newest() is None


ROWS = [Event(0.1 * number, "idle", round=number // 3 + 1, value=float("nan"), detail="{}") for number in range(9)]


def write(path, rows):
    with Journal(path) as journal:
        for first in range(0, len(rows), 3):
            journal.events(rows[first : first + 3])
            journal.commit()


def test_a_journal_that_was_cut_anywhere_goes_on_after_its_last_whole_round(tmp_path):
    path = tmp_path / "journal"
    write(path, ROWS)
    whole = path.read_bytes()
    for size in range(0, len(whole), 97):
        path.write_bytes(whole[:size])
        with Journal(path) as journal:
            rounds = 3 * size // len(whole)
            assert journal.rounds == rounds
            assert [row.time for row in journal.rows()] == [row.time for row in ROWS[: 3 * rounds]]
        write(path, ROWS)
        assert path.read_bytes() == whole


def test_a_journal_that_differs_is_noticed(tmp_path):
    write(tmp_path / "journal", ROWS)
    other = [*ROWS[:4], ROWS[4]._replace(value=1.0)]
    with Journal(tmp_path / "journal") as journal, pytest.raises(LogDiffers, match="event 4 was"):
        journal.events(other)
