"""Speakers as clients: what is read is what the file says, and no character is trained and tested on."""

import os

import numpy as np
import pytest

from edgefl.data.federated import load_federated, shard_sizes
from edgefl.data.partitions.by_owner import Natural
from edgefl.data.sets.shakespeare import ALPHABET, Shakespeare
from edgefl.data.sets.synthetic import Synthetic
from edgefl.errors import UserError

TEXT = "KING:\n" + "abcdefghij" * 6 + "\n\nFOOL:\n" + "0123456789" * 3 + "\n\nKING:\nEnd.\n\nPAGE:\nAy.\n"


@pytest.fixture
def plays(tmp_path):
    folder = tmp_path / "tinyshakespeare"
    folder.mkdir()
    (folder / "input.txt").write_text(TEXT, encoding="utf-8")

    def make(**options):
        return Shakespeare(**{"root": str(tmp_path), "clients": 2, "window": 4, "stride": 3, **options})

    return make


def text_of(codes):
    return "".join(ALPHABET[code] for code in codes)


def test_a_window_is_followed_by_its_label_in_the_speakers_own_text(plays):
    said = ["abcdefghij" * 6 + "\nEnd.", "0123456789" * 3]
    train, test = plays().read()
    for part in (train, test):
        for window, label, owner in zip(part.inputs, part.labels, part.owner, strict=True):
            assert text_of(window) + ALPHABET[label] in said[owner]
    assert set(train.owner) == {0, 1}
    assert text_of(train.inputs[0]) == "abcd"
    assert text_of(train.inputs[1]) == "defg"


def test_no_tested_character_was_trained_on(plays):
    cut = int(len("abcdefghij" * 6 + "\nEnd.") * 0.8)
    train, test = plays(stride=1).read()
    assert np.sum(train.owner == 0) == cut - 4
    assert np.sum(test.owner == 0) == 65 - cut - 4


def test_the_natural_partition_gives_each_speaker_its_own_windows(plays):
    data = load_federated(plays(test="partitioned"), seed=0)
    assert data.shape == (4,)
    assert data.classes == 96
    for client in range(2):
        assert set(data.train.owner[data.shards.shard(client)]) == {client}
        assert set(data.test.owner[data.evaluation_shards.shard(client)]) == {client}
    assert data.sizes.tolist() == shard_sizes(plays(), 0).tolist()
    assert data.sizes[0] > data.sizes[1]
    # One client takes the speaker with the most text; the other's windows belong to nobody.
    assert load_federated(plays(clients=1), seed=0).sizes.tolist() == [data.sizes[0]]


def test_more_clients_than_speakers_and_owners_that_nobody_names_are_refused(plays):
    with pytest.raises(UserError, match="at most 2 clients, one for each owner, found 3"):
        load_federated(plays(clients=3), seed=0)
    with pytest.raises(UserError, match="name the owner"):
        load_federated(Synthetic(clients=2, partition=Natural()), seed=0)


def test_a_part_of_the_windows_is_counted_alike_with_and_without_reading_them(plays):
    spec = plays(images=8, partition={"kind": "iid"})
    assert shard_sizes(spec, 0).tolist() == load_federated(spec, 0).sizes.tolist() == [4, 4]
    with pytest.raises(UserError, match=r"images: expected at most .*, found 1000"):
        plays(images=1000).describe()


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"tinyshakespeare/input\.txt"):
        Shakespeare(root=str(tmp_path)).describe()


@pytest.mark.skipif("EDGEFL_DATA" not in os.environ, reason="EDGEFL_DATA is not set")
def test_the_real_plays_have_a_hundred_speakers_and_more():
    data = load_federated(Shakespeare(clients=100, test="partitioned"), seed=0)
    assert data.shape == (80,)
    assert np.all(np.diff(data.sizes) <= 0)
    assert data.sizes[0] > 10 * data.sizes[-1]
    assert int(data.train.inputs.max()) < data.classes
    assert data.evaluation_shards.sizes.min() >= 1
