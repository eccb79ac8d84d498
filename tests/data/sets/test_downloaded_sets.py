"""Against real files, where EDGEFL_DATA says that they are."""

import os
import struct
import urllib.error
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgefl.data.dataset import channel_statistics
from edgefl.data.sets.parquet import Parquet
from edgefl.data.sets.tiny_imagenet import TinyImagenet, from_archive_folder
from edgefl.data.sets.torchvision import Cifar10, Emnist, FashionMnist, Mnist
from edgefl.errors import UserError


def write_idx(folder, name, values):
    """The format of MNIST's files, written from its description: magic number, sizes, bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    header = struct.pack(">HBB", 0, 8, values.ndim) + struct.pack(f">{values.ndim}I", *values.shape)
    (folder / name).write_bytes(header + values.astype(np.uint8).tobytes())


def no_network(*args, **kwargs):
    raise urllib.error.URLError("no network")


def test_files_in_torchvisions_layout_are_read_without_a_network(tmp_path, monkeypatch):
    monkeypatch.setattr("torchvision.datasets.mnist.download_and_extract_archive", no_network)
    images = np.random.default_rng(0).integers(0, 256, (5, 28, 28))
    for part, count in (("train", 5), ("t10k", 2)):
        write_idx(tmp_path / "MNIST" / "raw", f"{part}-images-idx3-ubyte", images[:count])
        write_idx(tmp_path / "MNIST" / "raw", f"{part}-labels-idx1-ubyte", np.arange(count))
    train, test = Mnist(root=str(tmp_path)).read()
    assert (train.inputs[:, 0] == images).all()
    assert test.labels.tolist() == [0, 1]


def test_emnist_is_turned_upright_and_letters_count_from_0(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (5, 28, 28))
    for part in ("train", "test"):
        for split in ("balanced", "byclass", "bymerge", "digits", "letters", "mnist"):
            write_idx(tmp_path / "EMNIST" / "raw", f"emnist-{split}-{part}-images-idx3-ubyte", images)
            write_idx(tmp_path / "EMNIST" / "raw", f"emnist-{split}-{part}-labels-idx1-ubyte", np.arange(1, 6))
    train, _ = Emnist(root=str(tmp_path), variant="letters").read()
    assert (train.inputs[:, 0] == images.transpose(0, 2, 1)).all()
    assert train.labels.tolist() == [0, 1, 2, 3, 4]
    balanced, _ = Emnist(root=str(tmp_path)).read()
    assert balanced.labels.tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("spec", "patched", "folder"),
    [
        (Mnist, "torchvision.datasets.mnist.download_and_extract_archive", "MNIST"),
        (Emnist, "torchvision.datasets.mnist.download_and_extract_archive", "EMNIST"),
        (Cifar10, "torchvision.datasets.cifar.download_and_extract_archive", "cifar-10-batches-py"),
        (TinyImagenet, "torchvision.datasets.utils.download_url", "tiny-imagenet-200"),
    ],
)
def test_a_failed_download_names_the_folder_and_the_remedy(tmp_path, monkeypatch, spec, patched, folder):
    monkeypatch.setattr(patched, no_network)
    root = tmp_path / "data"
    with pytest.raises(UserError, match=f"the folder '{root}' does not exist; create it, or set data.root"):
        spec(root=str(root)).read()
    assert not root.exists()
    root.mkdir()
    with pytest.raises(UserError, match=f"found no data in '{root / folder}'.*set data.root or .* EDGEFL_DATA"):
        spec(root=str(root)).read()


def test_damaged_files_are_the_users_error(tmp_path):
    for part in ("train", "t10k"):
        for what in ("images-idx3", "labels-idx1"):
            (tmp_path / "MNIST" / "raw").mkdir(parents=True, exist_ok=True)
            (tmp_path / "MNIST" / "raw" / f"{part}-{what}-ubyte").write_bytes(b"\0\0\x08\x01\0\0\0\x09abc")
    with pytest.raises(UserError, match=r"cannot be read .* remove them"):
        Mnist(root=str(tmp_path)).read()


def test_the_folders_of_the_tiny_imagenet_archive_are_read(tmp_path):
    (tmp_path / "wnids.txt").write_text("n02\nn01\n")
    (tmp_path / "val" / "images").mkdir(parents=True)
    shades = {"n01": 10, "n02": 200}
    for name, shade in shades.items():
        images = tmp_path / "train" / name / "images"
        images.mkdir(parents=True)
        Image.new("RGB", (64, 64), (shade, 0, 0)).save(images / f"{name}_0.JPEG")
        Image.new("L", (64, 64), shade).save(tmp_path / "val" / "images" / f"val_{name}.JPEG")
    (tmp_path / "val" / "val_annotations.txt").write_text(
        "val_n02.JPEG\tn02\t0\t0\t1\t1\nval_n01.JPEG\tn01\t0\t0\t1\t1\n"
    )
    train, test = from_archive_folder(tmp_path)
    assert train.labels.tolist() == [0, 1]
    assert test.labels.tolist() == [1, 0]
    assert train.inputs.shape == (2, 3, 64, 64)
    assert np.abs(np.asarray(test.inputs)[0].astype(int) - 200).max() <= 1


pytestmark = pytest.mark.full


def folder(name):
    root = os.environ.get("EDGEFL_DATA")
    if not root:
        pytest.skip("EDGEFL_DATA is not set")
    if not (Path(root) / name).is_dir():
        pytest.skip(f"EDGEFL_DATA has no folder {name}")
    return Path(root) / name


@pytest.mark.parametrize(("spec", "name"), [(FashionMnist(), "FashionMNIST"), (Mnist(), "MNIST")])
def test_images_are_the_bytes_of_the_files_and_facts_are_as_declared(spec, name):
    raw = folder(name) / "raw"
    train, test = spec.read()
    for part, prefix in ((train, "train"), (test, "t10k")):
        # Headers: 4 numbers of 4 bytes before the images, 2 before the labels.
        pixels = np.fromfile(raw / f"{prefix}-images-idx3-ubyte", np.uint8)[16:]
        assert (part.inputs.ravel() == pixels).all()
        assert (part.labels == np.fromfile(raw / f"{prefix}-labels-idx1-ubyte", np.uint8)[8:]).all()
    declared = spec.declared()
    assert np.bincount(train.labels).tolist() == list(declared.train)
    assert np.bincount(test.labels).tolist() == list(declared.test)
    mean, std = channel_statistics(train)
    assert declared.mean == pytest.approx(mean, abs=1e-4)
    assert declared.std == pytest.approx(std, abs=1e-4)


def test_a_parquet_copy_of_cifar10_has_its_numbers():
    place = folder("cifar10-jpeg")
    description = Parquet(root=str(place)).describe()
    assert (description.classes, description.shape) == (10, (3, 32, 32))
    assert (description.train, description.test) == ((5000,) * 10, (1000,) * 10)
    _, test = Parquet(root=str(place)).samples()
    mean, _ = channel_statistics(test)
    # The published mean of CIFAR-10's training images; compression and the other images shift it by little.
    assert mean == pytest.approx((0.4914, 0.4822, 0.4465), abs=0.01)
