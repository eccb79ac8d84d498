"""Arrays from files: every format gives the same samples, and every wrong file one message."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from edgefl.cli import main
from edgefl.data.dataset import load
from edgefl.data.federated import load_federated, shard_sizes
from edgefl.data.sets.arrays import Arrays
from edgefl.data.spec import data_set
from edgefl.errors import UserError
from edgefl.yaml_file import dump_yaml

from ...small_runs import SMALL

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((60, 4)), np.arange(60) % 3
CLIENT = np.arange(60) // 12


def parquet(path, **arrays):
    columns = {}
    for name, values in arrays.items():
        array = pa.array(values.reshape(-1).tolist() if values.dtype.kind == "U" else values.reshape(-1))
        for size in reversed(values.shape[1:]):
            offsets = np.arange(0, len(array) + 1, size, dtype=np.int32)
            array = pa.ListArray.from_arrays(pa.array(offsets), array)
        columns[name] = array
    pq.write_table(pa.table(columns), path, row_group_size=7)


WRITERS = {
    "npz": np.savez,
    "compressed.npz": np.savez_compressed,
    "safetensors": lambda path, **arrays: save_file({k: np.ascontiguousarray(v) for k, v in arrays.items()}, path),
    "parquet": parquet,
}


@pytest.fixture
def arrays(tmp_path):
    """A function that writes a file and returns its data set."""

    def make(form="npz", options=(), **written):
        path = tmp_path / f"train.{form}"
        WRITERS[form](path, **({"x": X, "y": Y} | written))
        return Arrays(train=str(path), clients=5, **dict(options))

    return make


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize(
    ("shape", "type"),
    [((), "float64"), ((4,), "bool"), ((3, 5), "float32"), ((2, 6, 6), "float16"), ((4,), "int64"), ((3, 5), "uint16")],
)
def test_every_format_shape_and_type_gives_the_values_that_were_written(arrays, form, shape, type):
    x = (RNG.standard_normal((60, *shape)) * 50).clip(0, 120).astype("float32").astype(type)
    spec = arrays(form, {"test_share": 0.25}, x=x, client=CLIENT)
    train, test = load(spec)
    assert (len(train), len(test)) == (45, 15)
    assert train.shape == (shape or (1,))
    order = np.lexsort(x.reshape(60, -1).T)
    both = np.concatenate([each.inputs.numpy() for each in (train, test)]).reshape(60, -1)
    assert (both[np.lexsort(both.T)] == x.reshape(60, -1)[order]).all()
    assert train.inputs.is_floating_point() == (type.startswith("float") or type == "bool")
    described = spec.describe()
    assert described.shape == train.shape
    assert described.train == tuple(np.bincount(train.labels).tolist())
    assert described.test == tuple(np.bincount(test.labels).tolist())


@pytest.mark.parametrize("form", WRITERS)
def test_inputs_labels_and_clients_stay_together(arrays, form):
    client = np.array([f"writer {number}" for number in 9 - CLIENT]) if form != "safetensors" else 9 - CLIENT
    for part in load(arrays(form, client=client)):
        rows = [np.flatnonzero((X.astype(np.float32) == row).all(axis=1))[0] for row in part.inputs.numpy()]
        assert part.labels.tolist() == Y[rows].tolist()
        assert part.owner.tolist() == (4 - CLIENT)[rows].tolist()


def test_images_are_bytes_with_channels_first_or_last_or_grey(arrays):
    images = RNG.integers(0, 256, (60, 3, 8, 9), np.uint8)
    first, _ = load(arrays(x=images))
    last, _ = load(arrays(x=images.transpose(0, 2, 3, 1), options={"channels": "last"}))
    assert (first.inputs == last.inputs).all()
    assert first.shape == (3, 8, 9)
    assert first.mean == last.mean
    assert len(first.mean) == 3
    assert load(arrays(x=images[:, 0]))[0].shape == (1, 8, 9)
    assert load(arrays(x=images.reshape(60, -1)))[0].mean == ()


def test_columns_of_a_table_make_one_input(tmp_path):
    pq.write_table(pa.table({"age": X[:, 0], "income": Y * 10, "kind": Y}), tmp_path / "people.parquet")
    train, _ = load(Arrays(train=str(tmp_path / "people.parquet"), inputs=("age", "income"), target="kind"))
    assert train.shape == (2,)
    assert (train.inputs[:, 1] == train.labels * 10).all()


def test_the_shares_for_testing_are_even_over_clients_and_classes_and_the_same_in_every_run(arrays):
    spec = arrays(x=np.zeros((600, 2)), y=np.arange(600) % 3, client=np.arange(600) // 120)
    one, other = (load_federated(spec.model_copy(update={"partition": spec.partition}), seed) for seed in (0, 1))
    assert (one.test.labels == other.test.labels).all()
    assert np.bincount(one.test.labels).tolist() == [40, 40, 40]
    assert np.bincount(one.test.owner).tolist() == [24] * 5


def test_every_class_and_every_client_keeps_a_sample_to_train_on(arrays):
    y = np.array([0] * 50 + [1, 2, 3, 4, 5] * 2)
    client = np.arange(60) % 20
    train, test = load(arrays(y=y, client=client, options={"test_share": 0.9}))
    assert set(train.labels.tolist()) == {0, 1, 2, 3, 4, 5}
    assert set(train.owner.tolist()) == set(range(20))
    assert len(test) >= 35


def test_clients_of_the_data_are_the_natural_partition(arrays, tmp_path):
    np.savez(tmp_path / "test.npz", x=X, y=Y, client=CLIENT[::-1])
    options = {"partition": {"kind": "natural"}, "test": str(tmp_path / "test.npz")}
    spec = arrays(client=np.array(list("eabcd"))[CLIENT], options={**options, "test_data": options["test"]})
    assert spec.test == "whole"
    with pytest.raises(UserError, match="expected integers or texts as clients in both splits, found integers in one"):
        load(spec)
    np.savez(tmp_path / "test.npz", x=X, y=Y, client=np.array(list("0edca"))[CLIENT])
    spec = spec.model_copy(update={"test": "partitioned"})
    data = load_federated(spec, 0)
    rows = [X[(k + 1) % 5 == CLIENT].astype(np.float32) for k in range(5)]
    for client in range(5):
        assert (data.train.inputs[data.shards.shard(client)].numpy() == rows[client]).all()
    tested = [len(data.evaluation_shards.shard(client)) for client in range(5)]
    assert tested == [12, 0, 12, 12, 12]  # b has no test data; those of 0 belong to nobody
    assert shard_sizes(spec, 0).tolist() == data.sizes.tolist() == [12] * 5


def damaged(path):
    path.write_bytes(path.read_bytes()[:-200])


def ragged(path):
    pq.write_table(pa.table({"x": [[1.0, 2.0]] * 59 + [[1.0]], "y": Y}), path)


def nulls(path):
    pq.write_table(pa.table({"x": [1.0] * 59 + [None], "y": Y}), path)


def rewritten(**arrays):
    return lambda path: np.savez(path, **({"x": X, "y": Y} | arrays))


def changed(values, position, value):
    values = values.copy()
    values[position] = value
    return values


def words(path):
    path.write_text("not an archive")


WRONG = {
    "another extension": ("csv", words, "of the format .npz, .safetensors, .parquet, found 'train.csv'"),
    "no archive": ("npz", words, "not a readable .npz file (File is not a zip file)"),
    "cut short": ("npz", damaged, "not a readable .npz file"),
    "no safetensors": ("safetensors", words, "not a readable .safetensors file"),
    "no parquet": ("parquet", words, "not a readable Parquet file"),
    "no inputs": ("npz", lambda path: np.savez(path, X=X, y=Y), "no array 'x' in this file; did you mean 'X'?"),
    "no column": ("parquet", lambda path: parquet(path, x=X), "no column 'y' in this file; expected one of: x"),
    "objects": ("npz", rewritten(x=X.astype(object)), "expected numbers in 'x', found Python objects (a pickle)"),
    "texts": ("npz", rewritten(x=X.astype(str)), "expected numbers in 'x', found the type text"),
    "fewer labels": ("npz", rewritten(y=Y[:50]), "expected as many values in 'y' as inputs in 'x', 60, found 50"),
    "one sample": ("npz", rewritten(x=X[:1], y=Y[:1]), "expected 2 samples or more, of which one is for testing"),
    "NaN": ("npz", rewritten(x=changed(X, 7, np.nan)), "finite numbers in 'x', found NaN or an infinity in sample 7"),
    "too large tokens": ("npz", rewritten(x=np.full((60, 3), 2**31)), "2^31 - 1 in 'x', found 2147483648"),
    "fractions": ("npz", rewritten(y=Y + 0.5), "whole numbers from 0, the classes in 'y', found 0.5 in sample 0"),
    "negative labels": ("npz", rewritten(y=Y - 1), "expected classes from 0 to 99999 in 'y', found -1 in sample 0"),
    "clients as fractions": ("npz", rewritten(client=CLIENT / 2), "clients in 'client' as an array of [samples] of"),
    "ragged lists": ("parquet", ragged, "expected lists of one length in 'x', found lengths from 1 to 2"),
    "empty cells": ("parquet", nulls, "expected a value in every row of 'x', found 1 empty"),
    "channels last": ("npz", rewritten(x=np.zeros((60, 8, 8, 3), np.uint8)), "set data.channels to last, or to first"),
}  # fmt: skip
WRONG_TESTS = {
    "another shape": (rewritten(x=X[:, :3]), "expected inputs of the shape [4], as in the training data, found [3]"),
    "an unknown label": (rewritten(y=Y + 1), "expected labels that are in the training data, found 3 in 'y'"),
}


def refused(capsys, tmp_path, data, model=None):
    """The one message of a command that reads these data."""
    model = model or {"name": "mlp", "widths": [4]}
    (tmp_path / "my.yaml").write_text(dump_yaml({**SMALL, "data": data, "model": model}))
    before = sorted(tmp_path.rglob("*"))
    assert main(["simulate", str(tmp_path / "my.yaml"), "--out", str(tmp_path / "run")]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    (line,) = output.err.splitlines()
    assert sorted(tmp_path.rglob("*")) == before, "something was written"
    return line


def message_of(**data):
    """The message with which these data are refused."""
    with pytest.raises(UserError) as refused:
        load(data_set({"name": "arrays", "clients": 8, **data}))
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_file_is_one_message_that_names_it(tmp_path, kind):
    form, spoil, message = WRONG[kind]
    path = tmp_path / f"train.{form}"
    if form in WRITERS:
        WRITERS[form](path, x=X, y=Y)
    spoil(path)
    found = message_of(train=str(path))
    assert message in found
    assert str(path) in found


@pytest.mark.parametrize("kind", WRONG_TESTS)
def test_wrong_test_data_are_one_message_that_names_them(tmp_path, kind):
    spoil, message = WRONG_TESTS[kind]
    np.savez(tmp_path / "train.npz", x=X, y=Y)
    spoil(tmp_path / "test.npz")
    found = message_of(train=str(tmp_path / "train.npz"), test=str(tmp_path / "test.npz"))
    assert message in found
    assert str(tmp_path / "test.npz") in found


def test_a_command_ends_with_the_message_and_writes_nothing(capsys, tmp_path):
    np.savez(tmp_path / "train.npz", x=changed(X, 7, np.nan), y=Y)
    assert "found NaN or an infinity in sample 7" in refused(capsys, tmp_path, {"name": "arrays", "train": "train.npz"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train": "trian.npz"}, "data.train: expected a file at 'trian.npz'"),
        ({"train": "train.npz", "test": "a.npz", "test_data": "b.npz"}, "expected one place of test data, found"),
        ({"train": "train.npz", "partition": {"kind": "natural"}}, "needs data that name the owner of each sample"),
        ({"train": "train.npz", "partition": {"kind": "file", "file": "c.csv"}}, "so test data must be given"),
    ],
)
def test_wrong_options_end_with_one_message(capsys, tmp_path, options, message):
    np.savez(tmp_path / "train.npz", x=X, y=Y)
    assert message in refused(capsys, tmp_path, {"name": "arrays", "clients": 8, **options})


def test_tokens_that_a_model_does_not_have_end_with_one_message(capsys, tmp_path):
    data = {"name": "arrays", "train": "train.npz", "clients": 8}
    model = {"name": "char_transformer", "width": 8, "heads": 2, "layers": 1}
    for x, message in (
        (np.arange(240).reshape(60, 4) % 4, "from 0 to 2, the tokens of the model, found 3 in the inputs"),
        (X, "found floating-point numbers as inputs"),
    ):
        np.savez(tmp_path / "train.npz", x=x, y=Y)
        assert message in refused(capsys, tmp_path, data, model)
