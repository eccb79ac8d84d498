"""The samples that a data set reads, their description without inputs, and checks of both."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from edgefl import limits
from edgefl.data.sharding import Integers
from edgefl.errors import WrongAnswer, one_line
from edgefl.tasks.base import Task
from edgefl.tasks.classification import Classification
from edgefl.wording import with_article

Kind = Literal["images", "numbers", "tokens"]
"""The kinds of inputs: images of bytes, float32 numbers, or integers such as the numbers of characters."""


def kind_of(type: np.dtype[Any], shape: tuple[int, ...]) -> Kind:
    """The kind of inputs of this type and of this shape of one sample.

    >>> kind_of(np.dtype(np.uint8), (3, 32, 32)), kind_of(np.dtype(np.uint8), (80,))
    ('images', 'tokens')
    """
    if type.kind == "f":
        return "numbers"
    return "images" if type == np.uint8 and len(shape) == 3 else "tokens"


TYPES = tuple(np.dtype(name) for name in ("uint8", "int16", "int32", "int64", "float32"))
"""The types of inputs."""


class Samples(NamedTuple):
    """Inputs and labels, as returned by a data set.

    Attributes:
        inputs: ``[samples, …]``. Images are uint8 ``[samples, channels, height, width]``; they are normalised for
            training. Numbers are float32 of any shape. All other integers are tokens, such as characters' numbers.
        labels: int64 ``[samples]``, from 0, or the labels of another task, such as float32 ``[samples, numbers]``.
        origin: int64 ``[samples]``: equal numbers mark distorted copies of one original; ``None`` without copies.
        owner: int64 ``[samples]``: the owner of each sample, from 0, for the natural partition; ``None`` if unknown.
        classes: number of classes or tokens, if the labels may not contain the last one.
    """

    inputs: NDArray[Any]
    labels: NDArray[Any]
    origin: Integers | None = None
    owner: Integers | None = None
    classes: int | None = None

    @property
    def kind(self) -> Kind:
        """The kind of the inputs."""
        return kind_of(self.inputs.dtype, self.inputs.shape[1:])


@dataclass(frozen=True, slots=True)
class Description:
    """The properties of a data set without its inputs.

    Attributes:
        classes: number of classes, or of outputs that the task needs.
        shape: the shape of one input: channels, height and width of an image, the length of a sequence, and so on.
        train: training samples of each class, ``classes`` numbers; one number if samples have no class.
        test: test samples of each class.
        mean: mean of each channel, of pixels in [0, 1]; ``None`` if it must be computed from the training images.
        std: standard deviation, likewise.
        kind: the kind of inputs; ``None``: images if the shape has three sides, else tokens.
    """

    classes: int
    shape: tuple[int, ...]
    train: tuple[int, ...]
    test: tuple[int, ...]
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    kind: Kind | None = None


def strata(labels: NDArray[Any], task: Task) -> Integers:
    """The class of each sample, by which data are divided evenly; all 0 if samples have no class."""
    return labels if task.classes else np.zeros(len(labels), dtype=np.int64)


def in_terms_of(task: Task, known: Description) -> Description:
    """The description of labelled data for a task, if it was given for classification.

    Raises:
        UserError: the task needs other labels than the numbers of classes.
    """
    if task.classes:
        return known
    outputs = task.outputs_for_classes(known.classes)
    return replace(known, classes=outputs, train=(sum(known.train),), test=(sum(known.test),))


def described(train: Samples, test: Samples, task: Task | None = None) -> Description:
    """The description of samples that have been read; mean and deviation are not set.

    Args:
        train: the training samples, with labels of the task.
        test: the test samples.
        task: the task; by default classification.

    >>> images = np.zeros((2, 1, 4, 4), dtype=np.uint8)
    >>> described(Samples(images, np.array([0, 1])), Samples(images, np.array([1, 1]))).test
    (0, 2)
    """
    task = task or Classification()
    if task.classes:
        outputs = rows = train.classes or class_number(train.labels, test.labels)
    else:
        outputs, rows = max(task.outputs(part.labels, train.classes) for part in (train, test)), 1
    return Description(
        classes=outputs,
        shape=train.inputs.shape[1:],
        train=tuple(np.bincount(strata(train.labels, task), minlength=rows).tolist()),
        test=tuple(np.bincount(strata(test.labels, task), minlength=rows).tolist()),
        kind=train.kind,
    )


def class_number(*labels: Integers) -> int:
    """The number of classes of labels: the largest label plus 1.

    Raises:
        WrongAnswer: a label is not from 0 to :data:`limits.CLASSES` - 1.
    """
    for label in (bound(each) for each in labels if each.size for bound in (np.min, np.max)):
        if not 0 <= label < limits.CLASSES:
            raise WrongAnswer(f"found the label {label}; expected the numbers of classes, 0 to {limits.CLASSES - 1}")
    return max(int(each.max(initial=0)) for each in labels) + 1


def checked_description(answer: object, task: Task | None = None) -> Description:
    """What :meth:`DataSpec.declared <edgefl.data.spec.DataSpec.declared>` returned, with its kind of inputs.

    Raises:
        WrongAnswer: it is no possible description.
    """
    if not isinstance(answer, Description):
        raise WrongAnswer(f"declared returned {one_line(answer)}; expected a Description or None")
    classes, shape, kind = answer.classes, answer.shape, answer.kind
    _expect(_is_whole(classes, 1, limits.CLASSES), "classes", classes, f"a whole number from 1 to {limits.CLASSES}")
    sizes = isinstance(shape, tuple) and bool(shape) and all(_is_whole(side, 1) for side in shape)
    _expect(sizes, "shape", shape, "the shape of one input, such as (channels, height, width), whole numbers from 1")
    kind = kind or ("images" if len(shape) == 3 else "tokens")
    _expect(kind in get_args(Kind), "kind", kind, "images, numbers or tokens")
    _expect(kind != "images" or len(shape) == 3, "shape", shape, "(channels, height, width), because these are images")
    for name, counts in (("train", answer.train), ("test", answer.test)):
        length = classes if task is None or task.classes else 1
        right = isinstance(counts, tuple) and len(counts) == length and all(_is_whole(count, 0) for count in counts)
        _expect(right and sum(counts) > 0, name, counts, f"the number of samples of each of the {classes} classes")
    channels = shape[0] if kind == "images" else 0
    for name, values, least in (("mean", answer.mean, -math.inf), ("std", answer.std, 0)):
        if values is not None:
            right = isinstance(values, tuple) and len(values) == channels and all(value > least for value in values)
            _expect(right, name, values, f"{channels} numbers, one for each channel{' and positive' * (least == 0)}")
    return replace(answer, kind=kind)


def _is_whole(value: object, least: int, most: float = math.inf) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(least <= value <= most)


def _expect(right: bool, name: str, found: object, expected: str) -> None:
    if not right:
        raise WrongAnswer(f"declared returned {name} = {one_line(found)}; expected {expected}")


def checked_samples(
    answer: object, declared: Description | None = None, task: Task | None = None
) -> tuple[Samples, Samples]:
    """Check what :meth:`DataSpec.read <edgefl.data.spec.DataSpec.read>` returned.

    Args:
        answer: what it returned.
        declared: what the data set declares about it, in terms of the task.
        task: the task; by default classification.

    Returns:
        The training and the test samples, with contiguous arrays and labels of the task.

    Raises:
        WrongAnswer: they are not such arrays, do not fit each other, or differ from what is declared.
    """
    if not isinstance(answer, tuple) or [type(each) for each in answer] != [Samples, Samples]:
        raise WrongAnswer(f"read returned {one_line(answer)}; expected the training and the test data as Samples")
    task = task or Classification()
    train, test = (_checked(part, split, task) for part, split in zip(answer, ("training", "test"), strict=True))
    known = declared or described(train, test, task)
    _compare(train, "training", known, known.train, task, declared=declared is not None)
    _compare(test, "test", known, known.test, task, declared=declared is not None)
    return train, test


def _compare(
    part: Samples, split: str, known: Description, counts: tuple[int, ...], task: Task, *, declared: bool
) -> None:
    """Check that one split is as described."""
    shape, like = part.inputs.shape[1:], "as declared" if declared else "like the training data"
    if shape != tuple(known.shape):
        raise WrongAnswer(f"read returned {split} inputs of the shape {shape}; expected {tuple(known.shape)}, {like}")
    if part.kind != known.kind:
        raise WrongAnswer(f"read returned {part.kind} as {split} inputs; expected {known.kind}, {like}")
    if not task.classes:
        expected = task.label_shape(known.classes, shape)
        if part.labels.shape[1:] != expected:
            raise WrongAnswer(
                f"read returned {split} labels of the shape {part.labels.shape[1:]} for a sample; expected {expected}"
            )
        if part.labels.dtype == np.int64 and part.labels.max() >= known.classes:
            raise WrongAnswer(f"read returned the {split} label {part.labels.max()}; expected 0 to {known.classes - 1}")
        if declared and len(part.labels) != sum(counts):
            raise WrongAnswer(f"read returned {len(part.labels)} {split} samples; expected {sum(counts)}, as declared")
        return
    if class_number(part.labels) > known.classes:
        raise WrongAnswer(
            f"read returned {split} samples with the label {part.labels.max()}; expected 0 to {known.classes - 1}"
        )
    found = np.bincount(part.labels, minlength=known.classes)
    for label in np.flatnonzero(found != np.array(counts))[:1]:
        raise WrongAnswer(
            f"read returned {len(part.labels)} {split} samples, {found[label]} of class {label}; "
            f"expected {sum(counts)}, {counts[label]} of class {label}, as declared"
        )


def _checked(part: Samples, split: str, task: Task) -> Samples:
    """One split with contiguous arrays and labels of the task."""
    inputs = part.inputs
    if not isinstance(inputs, np.ndarray) or inputs.dtype not in TYPES or inputs.ndim < 2:
        raise WrongAnswer(
            f"read returned as {split} inputs {_kind(inputs)}; expected an array of uint8 [images, channels, height, "
            "width], or of float32, uint8, int16, int32 or int64 [samples, ...]"
        )
    if not inputs.size:
        raise WrongAnswer(f"read returned {split} inputs of the shape {inputs.shape}; expected 1 sample or more")
    if part.kind == "numbers" and not np.isfinite(inputs).all():
        raise WrongAnswer(f"read returned {split} inputs that are not finite; expected finite numbers")
    numbers: dict[str, Any] = {}
    for name in ("labels", "origin", "owner") if task.classes else ("origin", "owner"):
        values = getattr(part, name)
        if values is None and name != "labels":
            continue
        if not isinstance(values, np.ndarray) or values.dtype.kind not in "iu" or values.shape != (len(inputs),):
            raise WrongAnswer(
                f"read returned as {name} of the {split} samples {_kind(values)}; expected an array of {len(inputs)} "
                "whole numbers, one for each sample"
            )
        numbers[name] = np.ascontiguousarray(values, dtype=np.int64)
    if part.classes is not None and not _is_whole(part.classes, 1, limits.CLASSES):
        raise WrongAnswer(
            f"read returned classes = {one_line(part.classes)} for the {split} samples; expected a whole number from 1 "
            f"to {limits.CLASSES}"
        )
    if task.classes:
        class_number(numbers["labels"])
    else:
        numbers["labels"] = _labels_of(part, split, task)
    return part._replace(inputs=np.ascontiguousarray(inputs), **numbers)


def _labels_of(part: Samples, split: str, task: Task) -> NDArray[Any]:
    """The labels of another task than classification, one for each input."""
    if not isinstance(part.labels, np.ndarray) or part.labels.shape[:1] != (len(part.inputs),):
        raise WrongAnswer(
            f"read returned as labels of the {split} samples {_kind(part.labels)}; expected an array of "
            f"{len(part.inputs)} labels"
        )
    try:
        return np.ascontiguousarray(task.completed(part.inputs, task.labels(part.labels)))
    except WrongAnswer as error:
        raise WrongAnswer(f"labels of the {split} samples: {error}") from None


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
