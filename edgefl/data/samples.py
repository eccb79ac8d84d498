"""The samples that a data set reads, their description without inputs, and checks of both."""

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgefl.data.sharding import Integers
from edgefl.errors import WrongAnswer, one_line
from edgefl.tasks.base import Task

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


class Samples(NamedTuple):
    """Inputs and labels, as returned by a data set.

    Attributes:
        inputs: ``[samples, …]``, an array or images that become one. Images are uint8 ``[samples, channels, height,
            width]``; they are normalised for training. Numbers are float32 of any shape. All other integers are tokens,
            such as characters' numbers.
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


def in_terms_of(task: Task, answer: object) -> Description:
    """What a data set declared, with its kind of inputs; it is about classes, and the task may have none."""
    if not isinstance(answer, Description):
        raise WrongAnswer(f"declared returned {one_line(answer)}; expected a Description or None")
    known = replace(answer, kind=answer.kind or ("images" if len(answer.shape) == 3 else "tokens"))
    if task.classes:
        return known
    outputs = task.outputs_for_classes(known.classes)
    return replace(known, classes=outputs, train=(sum(known.train),), test=(sum(known.test),))


def described(train: Samples, test: Samples, task: Task) -> Description:
    """The description of samples that have been read; mean and deviation are not set."""
    if task.classes:
        outputs = rows = train.classes or int(max(part.labels.max() for part in (train, test))) + 1
    else:
        parts = (train,) if task.label_type.is_floating_point else (train, test)
        outputs, rows = max(task.outputs(part.labels, train.classes) for part in parts), 1
    return Description(
        classes=outputs,
        shape=train.inputs.shape[1:],
        train=tuple(np.bincount(strata(train.labels, task), minlength=rows).tolist()),
        test=tuple(np.bincount(strata(test.labels, task), minlength=rows).tolist()),
        kind=train.kind,
    )


class WrongSamples(WrongAnswer):
    """Samples of one split that cannot be used; ``split`` is training or test."""

    def __init__(self, message: str, split: str) -> None:
        super().__init__(message)
        self.split = split


def checked_samples(answer: object, declared: Description | None, task: Task) -> tuple[Samples, Samples]:
    """The samples that ``DataSpec.read`` returned, with labels and the description ``declared`` of the task."""
    if not isinstance(answer, tuple) or [type(each) for each in answer] != [Samples, Samples]:
        raise WrongAnswer(f"read returned {one_line(answer)}; expected the training and the test data as Samples")
    train, test = (_checked(part, split, task) for part, split in zip(answer, ("training", "test"), strict=True))
    known, like = declared or described(train, test, task), "as declared" if declared else "as in the training data"
    for part, split, counts in ((train, "training", known.train), (test, "test", known.test)):

        def expect(right: bool, what: str, expected: object, found: object, split: str = split) -> None:
            if not right:
                raise WrongSamples(f"expected {split} {what} {expected}, found {found}", split)

        shape, of_label = list(part.inputs.shape[1:]), list(part.labels.shape[1:])
        expect(shape == list(known.shape), "inputs of the shape", f"{list(known.shape)}, {like}", shape)
        expect(part.kind == known.kind, "inputs that are", f"{known.kind}, {like}", part.kind)
        label_shape = list(task.label_shape(known.classes, tuple(shape)))
        expect(of_label == label_shape, "labels of the shape", f"{label_shape} for each sample", of_label)
        if part.labels.dtype == np.int64:
            most = part.labels.max()
            expect(most < known.classes, "labels from", f"0 to {known.classes - 1}", most)
        if declared:
            found = np.bincount(strata(part.labels, task), minlength=len(counts)).tolist()
            expect(found == list(counts), "samples of each class, as declared,", one_line(counts), one_line(found))
    return train, test


def _checked(part: Samples, split: str, task: Task) -> Samples:
    inputs = part.inputs
    if not hasattr(inputs, "shape") or inputs.dtype not in TYPES or len(inputs.shape) < 2:
        expected = "an array of uint8 [images, channels, height, width], or of float32, uint8, int16, int32 or int64"
        raise WrongSamples(f"expected as {split} inputs {expected} [samples, ...], found {_kind(inputs)}", split)
    if 0 in inputs.shape:
        raise WrongSamples(f"expected {split} inputs that are not empty, found {list(inputs.shape)}", split)
    if part.kind == "numbers" and not (finite := np.isfinite(inputs).reshape(len(inputs), -1).all(axis=1)).all():
        raise WrongSamples(f"expected finite {split} inputs, found NaN or infinity in sample {finite.argmin()}", split)
    given = {name: getattr(part, name) for name in ("labels", "origin", "owner")}
    for name, values in given.items():
        kinds = "iu" if name != "labels" else "iufb"
        if values is None and name != "labels":
            continue
        if not isinstance(values, np.ndarray) or values.dtype.kind not in kinds or len(values) != inputs.shape[0]:
            expected = f"an array of {inputs.shape[0]} numbers, one for each sample"
            raise WrongSamples(f"expected as {name} of the {split} samples {expected}, found {_kind(values)}", split)
        if kinds == "iu":
            given[name] = np.ascontiguousarray(values, dtype=np.int64)
    try:
        given["labels"] = np.ascontiguousarray(task.completed(inputs, task.labels(given["labels"])))
    except WrongAnswer as error:
        raise WrongSamples(f"labels of the {split} samples: {error}", split) from None
    return part._replace(**given)


def _kind(value: Any) -> str:
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"an array of {str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    return one_line(value)
