"""What a checkpoint writes, what it leaves to earlier ones, and when the journal hears of it."""

from __future__ import annotations

import threading

import pytest
import torch

from edgefl.experiment import checkpoint_writer
from edgefl.experiment.checkpoint_writer import CheckpointWriter
from edgefl.experiment.checkpoints import CheckpointDamaged, prune, read_checkpoint, write_checkpoint
from edgefl.experiment.journal import Journal


def clients(numbers: dict[int, float]) -> dict[str, torch.Tensor]:
    return {f"client/{client}": torch.full((1000,), number) for client, number in numbers.items()}


def packs(folder):
    return {path.name: path.stat().st_size for path in folder.glob("pack-*")}


def test_only_what_changed_is_written_again(tmp_path):
    before = {client: float(client) for client in range(10)}
    first = write_checkpoint(tmp_path, 10, clients(before), {"picked": [0]})
    (old, whole), *_ = packs(tmp_path).items()
    second = write_checkpoint(tmp_path, 20, clients({**before, 3: 99.0}), {"picked": [3]}, [first])
    prune(tmp_path, [second])
    (_, one), *others = sorted(packs(tmp_path).items(), key=lambda pack: pack[1])
    assert others == [(old, whole)]
    assert one < 0.2 * whole
    tensors, facts = read_checkpoint(tmp_path, second)
    assert facts == {"picked": [3]}
    assert {name: tensor[0].item() for name, tensor in tensors.items()} == {
        f"client/{client}": 99.0 if client == 3 else float(client) for client in range(10)
    }
    again = write_checkpoint(tmp_path, 30, clients({**before, 3: 99.0}), {}, [second])
    assert len(packs(tmp_path)) == 2
    assert read_checkpoint(tmp_path, again)[0].keys() == tensors.keys()


@pytest.mark.parametrize("changed", [1, 3, 9])
def test_old_packs_never_hold_more_than_four_times_what_is_needed(tmp_path, changed):
    values, kept = {client: float(client) for client in range(10)}, []
    for round in range(40):
        values |= {(round * changed + step) % 10: 100.0 * round + step for step in range(changed)}
        kept = [write_checkpoint(tmp_path, round, clients(values), {}, kept), *kept][:2]
        prune(tmp_path, kept)
        needed = 10 * 4000
        # Two checkpoints are kept, and each pack has a header of at most 200 bytes for every tensor.
        assert sum(packs(tmp_path).values()) < 2 * 4 * (needed + 10 * 200)
    assert read_checkpoint(tmp_path, kept[0])[0]["client/0"][0].item() == values[0]


def test_views_and_equal_tensors_are_read_back_as_they_were(tmp_path):
    vector = torch.arange(6.0)
    tensors = {
        "whole": vector, "front": vector[:2], "matrix": vector.clone().view(2, 3), "columns": vector.view(2, 3).t(),
        "equal": vector.clone(), "half": vector.bfloat16(), "count": torch.tensor(7), "none": torch.zeros(0),
    }  # fmt: skip
    found, _ = read_checkpoint(tmp_path, write_checkpoint(tmp_path, 1, tensors, {}))
    assert list(found) == list(tensors)
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor), name


@pytest.mark.parametrize("where", [0.001, 0.5, 0.999])
def test_a_flipped_byte_anywhere_is_found(tmp_path, where):
    name = write_checkpoint(tmp_path, 1, clients({0: 0.5, 1: 1.5}), {"round": 1})
    for path in tmp_path.iterdir():
        content = path.read_bytes()
        spoilt = bytearray(content)
        spoilt[int(where * len(content))] ^= 1
        path.write_bytes(spoilt)
        with pytest.raises(CheckpointDamaged):
            read_checkpoint(tmp_path, name)
        path.write_bytes(content)
    assert read_checkpoint(tmp_path, name)[1] == {"round": 1}


@pytest.fixture
def slow(monkeypatch):
    """A disk that takes until it is told to go on; an error may be put on it."""
    go_on, errors = threading.Event(), []

    def write(*arguments):
        assert go_on.wait(30)
        if errors:
            raise errors.pop()
        return write_checkpoint(*arguments)

    monkeypatch.setattr(checkpoint_writer, "write_checkpoint", write)
    return go_on, errors


def test_the_journal_names_a_checkpoint_once_it_is_whole_and_nobody_waits_for_that(tmp_path, slow):
    go_on, _ = slow
    with Journal(tmp_path / "journal.sqlite") as journal, CheckpointWriter(tmp_path / "c", journal) as writer:
        writer.begin(10, clients({0: 1.0}), {})
        writer.collect()
        assert journal.checkpoints() == []
        go_on.set()
        writer.finish()
        ((round, manifest),) = journal.checkpoints()
        assert round == 10
        assert (tmp_path / "c" / manifest).exists()
        writer.begin(20, clients({0: 2.0}), {})
    with Journal(tmp_path / "journal.sqlite") as journal:
        assert [round for round, _ in journal.checkpoints()] == [20, 10]


def test_a_full_disk_is_told_at_the_next_look(tmp_path, slow):
    go_on, errors = slow
    errors.append(OSError("full"))
    with Journal(tmp_path / "journal.sqlite") as journal, CheckpointWriter(tmp_path / "c", journal) as writer:
        writer.begin(10, clients({0: 1.0}), {})
        go_on.set()
        with pytest.raises(OSError, match="full"):
            writer.begin(20, clients({0: 1.0}), {})
        assert journal.checkpoints() == []
    assert not list(tmp_path.glob("c/*"))


@pytest.mark.parametrize(("reason", "told"), [(None, OSError), (KeyboardInterrupt, KeyboardInterrupt)])
def test_a_full_disk_ends_a_run_that_has_no_other_reason_to_end(tmp_path, slow, reason, told):
    go_on, errors = slow
    errors.append(OSError("full"))

    def write() -> None:
        with Journal(tmp_path / "journal.sqlite") as journal, CheckpointWriter(tmp_path / "c", journal) as writer:
            writer.begin(10, clients({0: 1.0}), {})
            go_on.set()
            if reason is not None:
                raise reason

    with pytest.raises(told):
        write()
