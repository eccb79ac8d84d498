"""Real handwritten digits from scikit-learn, enlarged to 28×28, with additional slightly distorted copies."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from edgefl.data.sharding import Integers
from edgefl.data.spec import DATA_SETS, DataSpec, Description, Samples
from edgefl.randomness import generator

CLASSES = 10
TEST_ORIGINALS = 60
"""Number of originals of each class in the test set."""
TRAINING_IMAGES = 1200
"""Number of training images of each class: its other originals and distorted copies of them."""
SIZE = 28
ENLARGEMENT = 3.0
"""Pixels per pixel of the original: 8 become 24, with a margin of 2."""
_ENLARGING = np.array([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]) / ENLARGEMENT
"""The map from a pixel's offset from the centre to the original's, without distortion, ``[1, 2, 3]``."""
DEGREES, SCALE, SHEAR, SHIFT = 15.0, (0.85, 1.15), 0.2, 2.0
"""Maximum rotation, range of each axis's scale, maximum shear and maximum shift (pixels) of a copy, all uniform."""
_SEED = 1797
"""Fixed: the images are the same in every run."""
_BITS = 16


@DATA_SETS.register("digits")
class Digits(DataSpec):
    """1,797 digits of 43 writers, 8×8 pixels (Alpaydin and Kaynak 1998, as packed in scikit-learn); no download.

    600 originals, 60 of each class, are the test set. The other 1,197 are the training set, each with eight to ten
    distorted copies: 12,000 images, 1,200 of each class. See ``docs/data.md``.
    """

    name: Literal["digits"] = Field(default="digits", description="scikit-learn's digits, enlarged and distorted")

    def declared(self) -> Description:
        train, test = (TRAINING_IMAGES,) * CLASSES, (TEST_ORIGINALS,) * CLASSES
        return Description(CLASSES, (1, SIZE, SIZE), train, test, mean=(0.2222,), std=(0.2999,))

    def read(self) -> tuple[Samples, Samples]:
        """Generate the images from scikit-learn's file; the bytes are the same on every machine."""
        from sklearn.datasets import load_digits

        bunch = load_digits()
        originals, labels = bunch.images.astype(np.int64), bunch.target.astype(np.int64)
        training, test = _split(labels)
        # The original of each training image: each class's originals, repeated until there are enough.
        own = [training[labels[training] == label] for label in range(CLASSES)]
        sources = np.concatenate([np.resize(each, TRAINING_IMAGES) for each in own])
        first = np.zeros(len(sources), dtype=bool)
        first[np.unique(sources, return_index=True)[1]] = True
        maps = np.where(first[:, None, None], _ENLARGING, _distortions(len(sources)))
        train_images = warped(originals[sources], maps)
        test_images = warped(originals[test], np.repeat(_ENLARGING, len(test), axis=0))
        return (
            Samples(train_images[:, None], labels[sources], origin=sources),
            Samples(test_images[:, None], labels[test]),
        )


def _split(labels: Integers) -> tuple[Integers, Integers]:
    """Positions of the training and the test originals, chosen at random in each class."""
    order = np.argsort(generator(_SEED, "digits test").random(len(labels)), kind="stable")
    test = np.concatenate([order[labels[order] == label][:TEST_ORIGINALS] for label in range(CLASSES)])
    return np.setdiff1d(np.arange(len(labels)), test), np.sort(test)


def _distortions(count: int) -> NDArray[np.float64]:
    """Random maps of the same form: rotation, scale, shear and shift, then the enlargement."""
    draws = generator(_SEED, "digits distortion").random((count, 6)) * 2 - 1
    angle = np.deg2rad(DEGREES) * draws[:, 0]
    middle, reach = sum(SCALE) / 2, (SCALE[1] - SCALE[0]) / 2
    wide, high = (middle + reach * draws[:, axis] for axis in (1, 2))
    shear = SHEAR * draws[:, 3]
    cosine, sine = np.cos(angle), np.sin(angle)
    maps = np.zeros((count, 2, 3))
    # The inverse of scale · shear · rotation, from target to source, written out, so that bits do not depend on a
    # library.
    maps[:, 0, 0], maps[:, 0, 1] = cosine / high, sine / high
    maps[:, 1, 0], maps[:, 1, 1] = (-sine + shear * cosine) / wide, (cosine + shear * sine) / wide
    maps[:, :, 2] = SHIFT * draws[:, 4:]
    return maps / ENLARGEMENT


def warped(originals: Integers, maps: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Images of 28×28 pixels, sampled from 8×8 originals bilinearly along affine maps; 0 outside an original.

    Originals ``[images, 8, 8]`` have values from 0 to 16, which becomes 255 in the images, uint8 ``[images, 28, 28]``.

    The maps ``[images, 2, 3]`` give the (row, column) offset of a source point from the original's centre, in its
    pixels, from (row, column, 1), the target pixel's offset from the image's centre. They are rounded to 2⁻¹⁶; all
    further computation uses integers, so all machines give the same result.
    """
    count, side = len(originals), originals.shape[1]
    padded = np.zeros((count, side + 2, side + 2), dtype=np.int32)
    padded[:, 1:-1, 1:-1] = originals
    padded = padded.reshape(count, -1)
    fixed = np.rint(maps * 2**_BITS).astype(np.int64)
    twice = 2 * np.arange(SIZE) - (SIZE - 1)  # twice the offset from the centre, a whole number
    result = np.empty((count, SIZE, SIZE), dtype=np.uint8)
    for start in range(0, count, 1000):
        chunk = slice(start, start + 1000)
        corner, weight = zip(*(_source(fixed[chunk, axis], twice, side) for axis in (0, 1)), strict=True)
        base = (corner[0] * (side + 2) + corner[1]).reshape(len(fixed[chunk]), -1)
        pixels = padded[chunk]
        below, right = (part.reshape(base.shape) for part in weight)
        above, left = 256 - below, 256 - right
        total = np.take_along_axis(pixels, base, 1) * above * left
        total += np.take_along_axis(pixels, base + 1, 1) * above * right
        total += np.take_along_axis(pixels, base + side + 2, 1) * below * left
        total += np.take_along_axis(pixels, base + side + 3, 1) * below * right
        # A full pixel is 16 · 256 · 256 = 2^20.
        result[chunk] = ((total * 255 + 2**19) >> 20).reshape(-1, SIZE, SIZE)
    return result


def _source(rows: Integers, twice: Integers, side: int) -> tuple[Integers, NDArray[np.int32]]:
    """Along one axis: the pixel before each source point in the padded original, and its weight beyond, of 256."""
    across, along, shift = (rows[:, index, None, None] for index in range(3))
    doubled = across * twice[None, :, None] + along * twice[None, None, :] + 2 * shift
    # Half of it, measured from the corner of the padding, where the centre is at (side + 1) / 2. Eight fraction bits
    # are kept, rounded to nearest.
    position = (doubled + ((side + 1) << _BITS) + (1 << (_BITS - 8))) >> (_BITS + 1 - 8)
    position = np.clip(position, 0, (side + 1) * 256 - 1)
    return position >> 8, (position & 255).astype(np.int32)
