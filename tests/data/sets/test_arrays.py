"""Arrays from files: every format gives the same samples, and every wrong file one message."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse
import torch
from safetensors.numpy import save_file

from edgefl.cli import main
from edgefl.data.dataset import load
from edgefl.data.federated import load_federated, shard_sizes
from edgefl.data.sets.arrays import Arrays
from edgefl.data.spec import data_set
from edgefl.errors import Note, UserError
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
    [((), "float64"), ((4,), "bool"), ((3, 5), "float32"), ((2, 6, 6), "float16"), ((4,), "int64"), ((5,), "uint16")],
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
    np.savez(tmp_path / "test.npz", x=X + 1, y=Y, client=CLIENT[::-1])
    options = {"partition": {"kind": "natural"}, "test": str(tmp_path / "test.npz")}
    spec = arrays(client=np.array(list("eabcd"))[CLIENT], options={**options, "test_data": options["test"]})
    assert spec.test == "whole"
    with pytest.raises(UserError, match="or of both as texts, found one of each"):
        load(spec)
    np.savez(tmp_path / "test.npz", x=X + 1, y=Y, client=np.array(list("0edca"))[CLIENT])
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
    "no inputs": ("npz", lambda path: np.savez(path, X=X, y=Y), "no array 'x' in this file; name data.inputs"),
    "no column": ("parquet", lambda path: parquet(path, x=X), "no column 'y' in this file; expected one of: x"),
    "objects": ("npz", rewritten(x=X.astype(object)), "expected numbers, found Python objects (a pickle)"),
    "texts": ("npz", rewritten(x=X.astype(str)), "expected numbers in 'x', found the type text"),
    "fewer labels": ("npz", rewritten(y=Y[:50]), "expected as many values in 'y' as in 'x', 60, found 50"),
    "one sample": ("npz", rewritten(x=X[:1], y=Y[:1]), "expected 2 samples or more, of which one is for testing"),
    "NaN": ("npz", rewritten(x=changed(X, 7, np.nan)), "finite numbers of float32 in 'x', found nan in sample 7"),
    "fractions": ("npz", rewritten(y=Y + 0.5), "whole numbers from 0, the classes in 'y', found 0.5 in sample 0"),
    "negative labels": ("npz", rewritten(y=Y - 1), "expected classes from 0 to 99999 in 'y', found -1 in sample 0"),
    "clients as fractions": ("npz", rewritten(client=CLIENT / 2), "clients in 'client' as an array of [samples] of"),
    "ragged lists": ("parquet", ragged, "expected lists of one length in 'x', found lengths from 1 to 2"),
    "empty cells": ("parquet", nulls, "expected a value in every row of 'x', found 1 empty"),
    "no pixels": ("npz", rewritten(x=RNG.integers(0, 300, (60, 8, 8))), "int64 [60, 8, 8], which may be pixels"),
    "labels from 1": ("npz", rewritten(y=Y + 1), "found none of class 0; number the classes from 0"),
    "a gap": ("npz", rewritten(y=Y * 2), "none of class 1; number the classes from 0 without gaps, or set data."),
    "bfloat16": ("npz", rewritten(x=X.astype("V2")), "which NumPy does not know (save bfloat16 as float32)"),
    "channels last": ("npz", rewritten(x=np.zeros((60, 8, 8, 3), np.uint8)), "set data.channels to last, or to first"),
}  # fmt: skip
WRONG_TESTS = {
    "another shape": (rewritten(x=X[:, :3]), "test inputs of the shape [4], as in the training data, found [3]"),
    "an unknown label": (rewritten(y=Y + 1), "in the training data, found 3 in 'y'; set data.classes to the number"),
}


def test_test_data_that_are_the_training_data_are_noted(tmp_path):
    np.savez(tmp_path / "all.npz", x=X, y=Y)
    file = str(tmp_path / "all.npz")
    with pytest.warns(Note, match="the test data are the training data, so accuracies are those of training"):
        _, test = load(data_set({"name": "arrays", "clients": 8, "train": file, "test": file}))
    assert len(test) == len(X)


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train": "trian.npz"}, "data.train: expected a file at 'trian.npz'"),
        (
            {"train": "train.npz", "test": "a.npz", "test_data": "b.npz"},
            "expected test: a.npz or test_data: b.npz, found both",
        ),
        ({"train": "train.npz", "partition": {"kind": "natural"}}, "needs data that name the owner of each sample"),
        (
            {"train": "train.npz", "partition": {"kind": "sizes", "images": [1] * 8, "owners": True}},
            "partition sizes needs data that name the owner of each sample",
        ),
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


FORMS = {
    "Fortran order": np.asfortranarray,
    "a stride": lambda x: np.repeat(x, 2, axis=0)[::2],
    "backwards in memory": lambda x: x[::-1].copy()[::-1],
    "columns backwards in memory": lambda x: x[..., ::-1].copy()[..., ::-1],
    "big-endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
    "half": lambda x: x.astype(np.float16),
    "bfloat16": lambda x: torch.from_numpy(x.copy()).bfloat16(),
    "sparse": lambda x: torch.from_numpy(x.copy()).to_sparse(),
    "of SciPy": scipy.sparse.csr_array,
    "nothing masked": lambda x: np.ma.array(x, mask=np.zeros(x.shape, bool)),
    "columns": lambda x: [*x],
}


@pytest.mark.usefixtures("any_python_file")
@pytest.mark.parametrize("form", FORMS)
def test_arrays_in_any_form_have_the_same_values(tmp_path, monkeypatch, form):
    x = RNG.integers(-9, 9, (60, 4)).astype(np.float32) / 4
    y = FORMS[form](Y[:, None].astype(np.float32)) if form not in ("of SciPy", "columns") else Y.astype(">i4")[:, None]
    (tmp_path / "data.py").write_text("import builtins\ndef load():\n    return builtins.GIVEN\n")
    monkeypatch.setattr("builtins.GIVEN", {"train": (FORMS[form](x), y), "test": (-x, Y)}, raising=False)
    train, _ = load(data_set({"python": f"{tmp_path / 'data.py'}:load", "clients": 3}))
    assert (train.inputs.numpy() == x).all()
    assert (train.labels.numpy() == Y).all()


@pytest.mark.usefixtures("any_python_file")
def test_masked_values_are_refused(tmp_path):
    x = "np.ma.array([[1.0], [2.0]], mask=[[0], [1]])"
    (tmp_path / "data.py").write_text(f"import numpy as np\ndef load():\n    return {{'train': ({x}, [0, 1])}}\n")
    with pytest.raises(UserError, match="a value in every place of 'train inputs', found masked ones; fill them"):
        load(data_set({"python": f"{tmp_path / 'data.py'}:load", "clients": 1}))


@pytest.mark.parametrize(
    ("x", "kind", "found", "type"),
    [
        (RNG.integers(0, 4000, (60, 2, 3, 4, 5), np.uint16), "numbers", "numbers", "float32"),  # a volume
        (RNG.integers(-5, 900, (60, 50)), None, "numbers", "float32"),  # no token is negative
        (RNG.integers(0, 4_000_000, (60, 50)), None, "numbers", "float32"),  # a spectrum
        (RNG.integers(0, 256, (60, 8, 9)), "images", "images", "uint8"),
        (RNG.integers(0, 256, (60, 3, 8, 9), np.int16), "images", "images", "uint8"),
        (RNG.integers(0, 90, (60, 50)), None, "tokens", "int32"),
        (RNG.integers(0, 90, (60, 50)), "numbers", "numbers", "float32"),
        (RNG.integers(0, 90, (60, 5, 7, 3), np.uint8), "tokens", "tokens", "int16"),
    ],
)
def test_integers_are_what_kind_says_or_what_their_shape_and_range_allow(arrays, x, kind, found, type):
    spec = arrays(x=x, options={"kind": kind})
    train, test = load(spec)
    assert spec.describe().kind == found
    assert str(train.inputs.numpy().dtype) == type
    assert train.inputs.double().sum() + test.inputs.double().sum() == x.sum()


def test_one_file_has_both_splits_under_any_names(tmp_path):
    np.savez(tmp_path / "all.npz", x_train=X, y_train=Y, x_test=X[:6] + 1, y_test=Y[:6, None])
    file = str(tmp_path / "all.npz")
    assert "name their arrays in data.inputs, data.target, data.test_inputs and" in message_of(train=file)
    names = {"inputs": "x_train", "target": "y_train", "test_inputs": "x_test", "test_target": "y_test"}
    train, test = load(Arrays(train=file, clients=5, **names))
    assert (len(train), test.labels.tolist()) == (60, [0, 1, 2, 0, 1, 2])


def test_stated_classes_may_be_empty_and_a_partition_that_needs_all_says_which(arrays, tmp_path):
    np.savez(tmp_path / "test.npz", x=X + 1, y=np.full(60, 3))
    spec = arrays(y=Y * 2, options={"classes": 6, "test": str(tmp_path / "test.npz")})
    assert spec.describe().train == (20, 0, 20, 0, 20, 0)
    assert spec.describe().test == (0, 0, 0, 60, 0, 0)
    for partition in ({"kind": "dirichlet", "alpha": 0.5}, {"kind": "iid"}, {"kind": "quantity", "sigma": 1.0}):
        assert shard_sizes(arrays(y=Y * 2, options={"classes": 6, "partition": partition}), 0).sum() > 0
    for partition in ({"kind": "shards", "s": 6}, {"kind": "label_level", "level": 2}):
        with pytest.raises(UserError, match="needs training samples of each class, and class 1 of 0 to 5 has none"):
            shard_sizes(arrays(y=Y * 2, options={"classes": 6, "partition": partition}), 0)


def test_users_that_only_the_test_data_have_are_tested_as_a_whole_or_refused(arrays, tmp_path):
    np.savez(tmp_path / "test.npz", x=X + 1, y=Y, client=CLIENT + 7)
    options = {"partition": {"kind": "natural"}, "test_data": str(tmp_path / "test.npz")}
    spec = arrays(client=CLIENT, options=options)
    assert len(load_federated(spec, 0).evaluation) == 60
    with pytest.raises(UserError, match=r"data\.test: no test sample is of one of the 5 clients"):
        load_federated(spec.model_copy(update={"test": "partitioned"}), 0)
    options |= {"test": "partitioned", "test_inputs": "moved", "test_client": "two", "test_data": None}
    for partition in ({"kind": "natural"}, {"kind": "sizes", "images": [3] * 5, "owners": True}):
        options["partition"] = partition
        data = load_federated(arrays(client=CLIENT, moved=X + 1, two=CLIENT // 4, options=options), 0)
        assert data.evaluation_shards.sizes.tolist() == [48, 12, 0, 0, 0]
