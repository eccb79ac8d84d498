"""The images that a data set reads, their description without pixels, and checks of both."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgefl.data.sharding import Integers
from edgefl.errors import WrongAnswer, one_line
from edgefl.wording import with_article

MOST_CLASSES = 100_000
"""Maximum number of classes; a larger label is not the number of a class."""


class Pixels(NamedTuple):
    """Images, or sequences of characters, as returned by a data set.

    Attributes:
        images: uint8 ``[images, channels, height, width]``, or ``[sequences, length]`` with characters' numbers.
        labels: int64 ``[images]``, from 0.
        origin: int64 ``[images]``: equal numbers mark distorted copies of one original; ``None`` without copies.
        owner: int64 ``[images]``: the owner of each image, from 0, for the natural partition; ``None`` if unknown.
        classes: number of classes, if the labels may not contain the last one.
    """

    images: NDArray[np.uint8]
    labels: Integers
    origin: Integers | None = None
    owner: Integers | None = None
    classes: int | None = None


@dataclass(frozen=True, slots=True)
class Description:
    """The properties of a data set without its pixels.

    Attributes:
        classes: number of classes. shape: channels, height and width of an image, or the length of a sequence.
        train: training images of each class, ``classes`` numbers.
        test: test images of each class.
        mean: mean of each channel, of pixels in [0, 1]; ``None`` if it must be computed from the training images.
        std: standard deviation, likewise.
    """

    classes: int
    shape: tuple[int, ...]
    train: tuple[int, ...]
    test: tuple[int, ...]
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None


def described(train: Pixels, test: Pixels) -> Description:
    """The description of images that have been read; mean and deviation are not set.

    >>> images = np.zeros((2, 1, 4, 4), dtype=np.uint8)
    >>> described(Pixels(images, np.array([0, 1])), Pixels(images, np.array([1, 1]))).test
    (0, 2)
    """
    classes = train.classes or class_number(train.labels, test.labels)
    return Description(
        classes=classes,
        shape=train.images.shape[1:],
        train=tuple(np.bincount(train.labels, minlength=classes).tolist()),
        test=tuple(np.bincount(test.labels, minlength=classes).tolist()),
    )


def class_number(*labels: Integers) -> int:
    """The number of classes of labels: the largest label plus 1.

    Raises:
        WrongAnswer: a label is not from 0 to :data:`MOST_CLASSES` - 1.
    """
    for label in (bound(each) for each in labels if each.size for bound in (np.min, np.max)):
        if not 0 <= label < MOST_CLASSES:
            raise WrongAnswer(f"found the label {label}; expected the numbers of classes, 0 to {MOST_CLASSES - 1}")
    return max(int(each.max(initial=0)) for each in labels) + 1


def checked_description(answer: object) -> Description | None:
    """Check what :meth:`DataSpec.declared <edgefl.data.spec.DataSpec.declared>` returned.

    Raises:
        WrongAnswer: it is neither ``None`` nor a possible description.
    """
    if answer is None:
        return None
    if not isinstance(answer, Description):
        raise WrongAnswer(f"declared returned {one_line(answer)}; expected a Description or None")
    classes, shape = answer.classes, answer.shape
    _expect(_is_whole(classes, 1, MOST_CLASSES), "classes", classes, f"a whole number from 1 to {MOST_CLASSES}")
    sizes = isinstance(shape, tuple) and len(shape) in (1, 3) and all(_is_whole(side, 1) for side in shape)
    _expect(sizes, "shape", shape, "(channels, height, width) or (length,), whole numbers from 1")
    for name, counts in (("train", answer.train), ("test", answer.test)):
        right = isinstance(counts, tuple) and len(counts) == classes and all(_is_whole(count, 0) for count in counts)
        _expect(right and sum(counts) > 0, name, counts, f"the number of images of each of the {classes} classes")
    channels = shape[0] if len(shape) == 3 else 0
    for name, values, least in (("mean", answer.mean, -math.inf), ("std", answer.std, 0)):
        if values is not None:
            right = isinstance(values, tuple) and len(values) == channels and all(value > least for value in values)
            _expect(right, name, values, f"{channels} numbers, one for each channel{' and positive' * (least == 0)}")
    return answer


def _is_whole(value: object, least: int, most: float = math.inf) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(least <= value <= most)


def _expect(right: bool, name: str, found: object, expected: str) -> None:
    if not right:
        raise WrongAnswer(f"declared returned {name} = {one_line(found)}; expected {expected}")


def checked_pixels(answer: object, declared: Description | None = None) -> tuple[Pixels, Pixels]:
    """Check what :meth:`DataSpec.read <edgefl.data.spec.DataSpec.read>` returned.

    Args:
        answer: what it returned.
        declared: what the data set declares about it.

    Returns:
        The training and the test images, with contiguous arrays and int64 labels.

    Raises:
        WrongAnswer: they are not such arrays, do not fit each other, or differ from what is declared.
    """
    if not isinstance(answer, tuple) or [type(each) for each in answer] != [Pixels, Pixels]:
        raise WrongAnswer(f"read returned {one_line(answer)}; expected the training and the test images as Pixels")
    train, test = (_checked(part, split) for part, split in zip(answer, ("training", "test"), strict=True))
    known = declared or described(train, test)
    _compare(train, "training", known, known.train, declared=declared is not None)
    _compare(test, "test", known, known.test, declared=declared is not None)
    return train, test


def _compare(part: Pixels, split: str, known: Description, counts: tuple[int, ...], *, declared: bool) -> None:
    """Check that one split is as described."""
    shape, like = part.images.shape[1:], "as declared" if declared else "like the training images"
    if shape != tuple(known.shape):
        raise WrongAnswer(f"read returned {split} images of the shape {shape}; expected {tuple(known.shape)}, {like}")
    if class_number(part.labels) > known.classes:
        raise WrongAnswer(
            f"read returned {split} images with the label {part.labels.max()}; expected 0 to {known.classes - 1}"
        )
    found = np.bincount(part.labels, minlength=known.classes)
    for label in np.flatnonzero(found != np.array(counts))[:1]:
        raise WrongAnswer(
            f"read returned {len(part.labels)} {split} images, {found[label]} of class {label}; "
            f"expected {sum(counts)}, {counts[label]} of class {label}, as declared"
        )


def _checked(part: Pixels, split: str) -> Pixels:
    """One split with contiguous arrays and int64 numbers."""
    images = part.images
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.ndim not in (2, 4):
        raise WrongAnswer(
            f"read returned as {split} images {_kind(images)}; expected an array of uint8 "
            "[images, channels, height, width] or [sequences, length]"
        )
    if not images.size:
        raise WrongAnswer(f"read returned {split} images of the shape {images.shape}; expected 1 image or more")
    numbers: dict[str, Any] = {}
    for name in ("labels", "origin", "owner"):
        values = getattr(part, name)
        if values is None and name != "labels":
            continue
        if not isinstance(values, np.ndarray) or values.dtype.kind not in "iu" or values.shape != (len(images),):
            raise WrongAnswer(
                f"read returned as {name} of the {split} images {_kind(values)}; expected an array of {len(images)} "
                "whole numbers, one for each image"
            )
        numbers[name] = np.ascontiguousarray(values, dtype=np.int64)
    if part.classes is not None and not _is_whole(part.classes, 1, MOST_CLASSES):
        raise WrongAnswer(
            f"read returned classes = {one_line(part.classes)} for the {split} images; expected a whole number from 1 "
            f"to {MOST_CLASSES}"
        )
    class_number(numbers["labels"])
    return part._replace(images=np.ascontiguousarray(images), **numbers)


def _kind(value: Any) -> str:
    """An array, a tensor or something else in words.

    >>> _kind(np.zeros((2, 3))), _kind([1, 2])
    ('a numpy.ndarray of float64 [2, 3]', '[1, 2]')
    """
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        name = type(value).__name__
        module = type(value).__module__.partition(".")[0]
        kind = with_article(f"{module}.{name}")
        return f"{kind} of {str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    return one_line(value)
