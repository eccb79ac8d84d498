"""Clients that a file lists: every form of the same list gives the same shards."""

import json

import numpy as np
import pytest

from edgefl.data.federated import load_federated, shard_sizes
from edgefl.data.partitions import ByFile
from edgefl.data.sets.synthetic import Synthetic
from edgefl.errors import UserError

CLIENTS = [7, 3, 7, 7, 30, 3, 7, 3]
FORMS = {
    "by_row.csv": "client\n" + "".join(f"{client}\n" for client in CLIENTS),
    "by_index.csv": "label,index,client\n" + "".join(f"x,{i},{CLIENTS[i]}\n" for i in (3, 0, 1, 2, 7, 6, 5, 4)),
    "list.json": json.dumps(CLIENTS),
    "by_index.json": json.dumps({str(index): client for index, client in enumerate(CLIENTS)}),
    "by_client.json": json.dumps({"30": [4], "7": [0, 2, 3, 6], "3": [7, 1, 5], "9": []}),
    "texts.json": json.dumps([f"c{client:02}" for client in CLIENTS]),
}


def data(path, text, **options):
    path.write_text(text)
    options = {"clients": 3, "train": 20, "test": 12, "classes": 2, **options}
    return Synthetic(partition=ByFile(file=str(path)), shape=(1, 8, 8), **options)


@pytest.mark.parametrize("name", FORMS)
def test_each_client_has_the_samples_that_the_file_lists(tmp_path, name):
    spec = data(tmp_path / name, FORMS[name])
    shards = load_federated(spec, 0).shards
    assert [shards.shard(client).tolist() for client in range(3)] == [[1, 5, 7], [0, 2, 3, 6], [4]]
    assert shard_sizes(spec, 0).tolist() == [3, 4, 1]
    assert load_federated(data(tmp_path / name, FORMS[name], clients=2), 0).shards.sizes.tolist() == [3, 4]
    split = spec.partition.split(np.arange(20) % 2, 2, 3, np.random.default_rng(0))
    assert split.indices.tolist() == shards.indices.tolist()
    assert spec.partition.sizes(np.array([10, 10]), 3, np.random.default_rng(0)).tolist() == [3, 4, 1]


def test_texts_are_sorted_as_texts_and_numbers_as_numbers(tmp_path):
    text = "client\n" + "".join(f"{client}\n" for client in (10, 9, "a", "b"))
    assert load_federated(data(tmp_path / "c.csv", text, clients=4), 0).shards.indices.tolist() == [0, 1, 2, 3]
    assert load_federated(data(tmp_path / "d.csv", text[:-4], clients=2), 0).shards.indices.tolist() == [1, 0]


def test_a_part_of_the_samples_keeps_its_clients(tmp_path):
    every = json.dumps([index % 4 for index in range(20)])
    spec = data(tmp_path / "all.json", every, clients=4, images=10)
    federated = load_federated(spec, 0)
    whole = load_federated(spec.model_copy(update={"images": None}), 0)
    assert federated.sizes.sum() == 10
    assert shard_sizes(spec, 0).tolist() == federated.sizes.tolist()
    for client in range(4):
        images = {image.numpy().tobytes() for image in federated.train.inputs[federated.shards.shard(client)]}
        assert images <= {image.numpy().tobytes() for image in whole.train.inputs[whole.shards.shard(client)]}
    held = load_federated(spec.model_copy(update={"images": None, "test": "partitioned"}), 0, split="validation")
    assert shard_sizes(spec.model_copy(update={"images": None}), 0, "validation").tolist() == held.sizes.tolist()
    assert held.evaluation_shards.sizes.sum() + held.sizes.sum() == 20


def test_test_data_are_cut_like_the_training_data(tmp_path):
    spec = data(tmp_path / "all.json", json.dumps([index % 2 for index in range(20)]), clients=2, test_images=12)
    federated = load_federated(spec.model_copy(update={"test": "partitioned"}), 0)
    assert federated.evaluation_shards.sizes.tolist() == [6, 6]


WRONG = {
    "another extension": ("c.txt", "", "expected a file of the format .csv or .json, found 'c.txt'"),
    "no column": ("c.csv", "index,cleint\n", "possibly index; did you mean 'cleint'"),
    "only a header": ("c.csv", "client\n", "expected the clients of samples, found none"),
    "a short row": ("c.csv", "index,client\n0,1\n2\n", "line 3: expected 2 values, found 1"),
    "no index": ("c.csv", "index,client\nx,1\n", "expected indices of training samples, 0 to 19, found 'x'"),
    "a large index": ("c.csv", "index,client\n20,1\n", "expected indices of training samples, 0 to 19, found 20"),
    "an index twice": ("c.json", '{"a": [1, 2], "b": [2]}', "expected each index once, found 2 twice"),
    "a fraction": ("c.json", '{"a": [1.5]}', "expected indices of training samples, 0 to 19, found 1.5"),
    "texts and numbers": ("c.json", '["a", 1]', "expected clients that are all integers or all texts, found both"),
    "no JSON": ("c.json", "{", "not JSON (line 1"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_file_is_one_message_that_names_it(tmp_path, kind):
    name, text, message = WRONG[kind]
    path = tmp_path / name
    path.write_text(text)
    spec = Synthetic(partition=ByFile(file=str(path)), clients=3, train=20, test=12, classes=2, shape=(1, 8, 8))
    with pytest.raises(UserError) as refused:
        load_federated(spec, 0)
    assert message in str(refused.value)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_more_clients_than_the_file_has_and_a_missing_file_are_refused(tmp_path):
    with pytest.raises(UserError, match="partition file expects at most 3 clients, one for each owner, found 4"):
        shard_sizes(data(tmp_path / "c.json", FORMS["list.json"], clients=4), 0)
    with pytest.raises(UserError, match=r"expected a file at .*none\.csv"):
        load_federated(Synthetic(partition=ByFile(file=str(tmp_path / "none.csv"))), 0)
