"""Against real files, where EDGEFL_DATA says that they are."""

import os
from pathlib import Path

import numpy as np
import pytest

from edgefl.data.dataset import channel_statistics
from edgefl.data.sets.parquet import Parquet
from edgefl.data.sets.torchvision import FashionMnist, Mnist

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
