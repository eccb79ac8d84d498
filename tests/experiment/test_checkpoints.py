"""What a checkpoint writes, what it leaves to earlier ones, and when the journal names it."""

from __future__ import annotations

import json
import threading
from concurrent.futures import Future

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


def test_what_did_not_change_is_read_from_the_newest_pack_that_holds_it(tmp_path):
    first = write_checkpoint(tmp_path, 10, clients({client: float(client) for client in range(10)}), {})
    values = {client: float(client) if client < 2 else 100.0 + client for client in range(10)}
    # Two tensors of ten are too little to keep the first pack for; so the second one holds them as well.
    second = write_checkpoint(tmp_path, 20, clients(values), {}, [first])
    before = packs(tmp_path)
    third = write_checkpoint(tmp_path, 30, clients(values), {}, [second, first])
    assert packs(tmp_path) == before
    prune(tmp_path, [third])
    assert len(packs(tmp_path)) == 1
    assert read_checkpoint(tmp_path, third)[0]["client/0"][0].item() == values[0]


def test_nothing_builds_on_an_older_checkpoint_that_nobody_has_read(tmp_path):
    folder, odd, even = tmp_path / "checkpoints", clients({0: 1.0}), clients({0: 2.0})
    with Journal(tmp_path / "journal.sqlite") as journal:
        with CheckpointWriter(folder, journal) as earlier:
            earlier.begin(10, odd, {})
            earlier.begin(20, even, {})
        (_, newest), (_, older) = journal.checkpoints()
        (pack,) = set(packs(folder)) - set(json.loads((folder / newest).read_bytes())["packs"].values())
        (folder / pack).write_bytes(b"damaged")
        with pytest.raises(CheckpointDamaged):
            read_checkpoint(folder, older)

        # A later process, which has read the newest, comes back to what only the older one holds.
        with CheckpointWriter(folder, journal) as later:
            later.begin(30, odd, {})
            later.finish()
            whole = packs(folder)
            later.begin(40, even, {})
            later.begin(50, odd, {})
        assert packs(folder) == whole  # its own it trusts
        for _, manifest in journal.checkpoints()[:2]:
            read_checkpoint(folder, manifest)


def test_old_packs_never_hold_more_than_four_times_what_is_needed(tmp_path):
    """In every round one more client is never picked again: each pack is left with one tensor that is needed."""
    of = 10
    values, kept = {client: float(client) for client in range(of)}, []
    for round in range(of):
        values |= {client: 100.0 * round + client for client in range(round, of)}
        kept = [write_checkpoint(tmp_path, round, clients(values), {}, kept), *kept][:2]
        prune(tmp_path, kept[:1])
        assert sum(packs(tmp_path).values()) <= 4 * of * 4000


def test_views_and_equal_tensors_are_read_back_as_they_were(tmp_path):
    vector = torch.arange(6.0)
    tensors = {
        "equal": vector.clone(), "whole": vector, "front": vector[:2], "matrix": vector.view(2, 3),
        "columns": vector.view(2, 3).t(), "half": vector.bfloat16(), "count": torch.tensor(7), "none": torch.zeros(0),
    }  # fmt: skip
    found, _ = read_checkpoint(tmp_path, write_checkpoint(tmp_path, 1, tensors, {}))
    assert list(found) == list(tensors)
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor), name


def test_a_flipped_byte_is_found(tmp_path):
    name = write_checkpoint(tmp_path, 1, clients({0: 0.5, 1: 1.5}), {"round": 1})
    for path in tmp_path.iterdir():
        content = path.read_bytes()
        spoilt = bytearray(content)
        spoilt[len(content) // 2] ^= 1
        path.write_bytes(spoilt)
        with pytest.raises(CheckpointDamaged):
            read_checkpoint(tmp_path, name)
        path.write_bytes(content)
    assert read_checkpoint(tmp_path, name)[1] == {"round": 1}


@pytest.fixture
def slow(monkeypatch):
    """A disk that writes once ``go_on`` is set, or raises the error in ``errors``."""
    go_on, errors = threading.Event(), []

    def write(*arguments):
        assert go_on.wait(30)
        if errors:
            raise errors.pop()
        return write_checkpoint(*arguments)

    monkeypatch.setattr(checkpoint_writer, "write_checkpoint", write)
    return go_on, errors


def test_the_journal_names_a_checkpoint_once_it_is_whole_and_nothing_waits_for_that(tmp_path, slow):
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


def test_a_checkpoint_under_way_is_named_although_waiting_for_it_was_interrupted(tmp_path, slow, monkeypatch):
    go_on, _ = slow
    result = Future.result

    def interrupted(future, timeout=None):
        monkeypatch.setattr(Future, "result", result)
        go_on.set()
        raise KeyboardInterrupt

    def write() -> None:
        with Journal(tmp_path / "journal.sqlite") as journal, CheckpointWriter(tmp_path / "c", journal) as writer:
            writer.begin(10, clients({0: 1.0}), {})
            monkeypatch.setattr(Future, "result", interrupted)
            writer.finish()

    with pytest.raises(KeyboardInterrupt):
        write()
    with Journal(tmp_path / "journal.sqlite") as journal:
        ((round, manifest),) = journal.checkpoints()
    assert round == 10
    assert read_checkpoint(tmp_path / "c", manifest)[0]["client/0"][0].item() == 1.0


def test_a_tensor_that_is_changed_in_place_after_it_was_handed_over_is_named(tmp_path):
    tensors = clients({0: 1.0, 1: 2.0})

    def write() -> None:
        with Journal(tmp_path / "journal.sqlite") as journal, CheckpointWriter(tmp_path / "c", journal) as writer:
            writer.begin(10, tensors, {})
            tensors["client/1"].add_(1.0)

    with pytest.raises(RuntimeError, match="'client/1' was changed in place after round 10"):
        write()
    with Journal(tmp_path / "journal.sqlite") as journal:
        assert journal.checkpoints() == []


def test_a_full_disk_is_raised_at_the_next_checkpoint(tmp_path, slow):
    go_on, errors = slow
    errors.append(OSError("full"))
    with Journal(tmp_path / "journal.sqlite") as journal, CheckpointWriter(tmp_path / "c", journal) as writer:
        writer.begin(10, clients({0: 1.0}), {})
        go_on.set()
        with pytest.raises(OSError, match="full"):
            writer.begin(20, clients({0: 1.0}), {})
        assert journal.checkpoints() == []
    assert not list(tmp_path.glob("c/*"))


def test_an_error_of_a_checkpoint_is_raised_once_and_hides_no_other(tmp_path, slow):
    go_on, errors = slow
    go_on.set()

    def write() -> None:
        with Journal(tmp_path / "journal.sqlite") as journal, CheckpointWriter(tmp_path / "c", journal) as writer:
            errors.append(OSError("first"))
            writer.begin(10, clients({0: 1.0}), {})
            with pytest.raises(OSError, match="first"):
                writer.finish()
            writer.finish()
            errors.append(OSError("second"))
            writer.begin(20, clients({0: 1.0}), {})
            raise KeyError("the run's own")

    with pytest.raises(KeyError, match="own"):
        write()
