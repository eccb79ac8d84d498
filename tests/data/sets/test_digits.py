import hashlib
from collections import Counter

import numpy as np
import pytest
from scipy.ndimage import map_coordinates
from sklearn.datasets import load_digits

from edgefl.data.dataset import channel_statistics
from edgefl.data.sets.digits import Digits, warped


@pytest.fixture(scope="module")
def parts():
    return Digits().read()


def centres(images):
    """Every third pixel lies on the centre of an original's pixel."""
    return images[:, 0, 3:25:3, 3:25:3]


def test_the_sizes_are_those_declared(parts):
    declared = Digits().declared()
    for part, sizes in zip(parts, (declared.train, declared.test), strict=True):
        assert part.inputs.shape == (sum(sizes), *declared.shape)
        assert part.inputs.dtype == np.uint8
        assert np.bincount(part.labels).tolist() == list(sizes)
    mean, std = channel_statistics(parts[0])
    assert declared.mean == pytest.approx(mean, abs=1e-4)
    assert declared.std == pytest.approx(std, abs=1e-4)


def test_test_images_are_originals_only_enlarged_and_none_of_them_is_trained_on(parts):
    train, test = parts
    originals = np.rint(load_digits().images * 255 / 16).astype(np.uint8)
    _, first = np.unique(train.origin, return_index=True)
    used = [*centres(test.inputs), *centres(train.inputs[first])]
    assert Counter(image.tobytes() for image in used) == Counter(image.tobytes() for image in originals)


def test_every_training_original_has_about_ten_different_images_of_its_class(parts):
    train = parts[0]
    names, copies = np.unique(train.origin, return_counts=True)
    assert len(names) == 1797 - 600
    assert copies.min() >= 9
    assert copies.max() <= 11
    assert (train.labels == load_digits().target[train.origin]).all()
    assert len({image.tobytes() for image in train.inputs}) > 0.999 * len(train.inputs)


def test_the_same_bytes_come_out_everywhere(parts):
    assert hashlib.sha256(parts[0].inputs.tobytes()).hexdigest().startswith("692cafdbeadb8928")
    assert hashlib.sha256(parts[1].inputs.tobytes()).hexdigest().startswith("cee87518fcb66f0c")


def test_integer_sampling_is_bilinear_interpolation():
    rng = np.random.default_rng(0)
    originals = rng.integers(0, 17, (50, 8, 8))
    maps = np.concatenate([rng.normal(0, 0.3, (50, 2, 2)), rng.normal(0, 2, (50, 2, 1))], axis=2)
    offset = np.arange(28) - 13.5
    row, column = np.meshgrid(offset, offset, indexing="ij")
    for original, matrix, ours in zip(originals, maps, warped(originals, maps), strict=True):
        points = [a * row + b * column + c + 3.5 for a, b, c in matrix]
        expected = map_coordinates(np.pad(original, 1) * 255 / 16, [p + 1 for p in points], order=1, cval=0.0)
        # Positions are rounded to 1/256 of a pixel, on each axis, and values to whole numbers.
        assert np.abs(ours - expected).max() <= 255 * 2 / 256 + 1
