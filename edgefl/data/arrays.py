"""Arrays from users as samples: inputs of any shape, labels and the clients that hold them, each with its checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from edgefl import limits
from edgefl.data.holdout import split_off
from edgefl.data.samples import Description, Samples, kind_of, strata
from edgefl.data.sharding import Integers
from edgefl.errors import UserError, WrongAnswer
from edgefl.tasks.base import Task

Channels = Literal["first", "last"]


class Raw(NamedTuple):
    """The arrays of one split, as a file or a function gives them.

    Attributes:
        type: the type of the inputs.
        shape: the shape of the inputs, ``[samples, …]``.
        read: reads the inputs.
        targets: the array of labels.
        client: the array of the samples' clients, or ``None``.
        names: the names of inputs, labels and clients in messages.
        place: the file or folder of the arrays, for messages.
        channels: the place of the channels in the inputs; ``None``: first, unless the shape looks like last.
    """

    type: np.dtype[Any]
    shape: tuple[int, ...]
    read: Callable[[], NDArray[Any]]
    targets: NDArray[Any]
    client: NDArray[Any] | None
    names: tuple[str, str, str]
    place: str
    channels: Channels | None = None

    @classmethod
    def of(
        cls,
        inputs: NDArray[Any],
        targets: NDArray[Any],
        client: NDArray[Any] | None,
        names: tuple[str, str, str],
        place: str,
        *,
        channels: Channels | None = None,
    ) -> Raw:
        """A split of which the inputs have been read."""
        return cls(inputs.dtype, inputs.shape, lambda: inputs, targets, client, names, place, channels)

    def refuse(self, message: str) -> NoReturn:
        """Raise the error ``message``, with the place."""
        raise UserError(message, file=self.place)


class _Part(NamedTuple):
    """A checked split without its inputs: their type and shape, labels and clients."""

    type: np.dtype[Any]
    shape: tuple[int, ...]
    labels: NDArray[Any]
    client: NDArray[Any] | None


def description_of(train: Raw, test: Raw | None, share: float, task: Task, classes: int | None = None) -> Description:
    """The description of the samples of :func:`samples_of`; the inputs are not read.

    Raises:
        UserError: as :func:`samples_of`, except for the values of the inputs.
    """
    one, other, (kept, out) = _parts(train, test, share, task)
    outputs = _outputs(train, one, other, task, classes)
    rows = outputs if task.classes else 1
    counts = [np.bincount(strata(part, task), minlength=rows) for part in (one.labels[kept], other.labels[out])]
    train_counts, test_counts = (tuple(each.tolist()) for each in counts)
    return Description(outputs, one.shape, train_counts, test_counts, kind=kind_of(one.type, one.shape))


def samples_of(
    train: Raw, test: Raw | None, share: float, task: Task, classes: int | None = None
) -> tuple[Samples, Samples]:
    """The training and the test samples.

    Args:
        train: the training arrays.
        test: the test arrays; ``None``: a share of the training arrays is the test data.
        share: that share.
        task: the task, which determines the labels.
        classes: the number of classes or tokens, if the labels may not contain the last one.

    Raises:
        UserError: the arrays are not of a possible type or shape, differ in length, contain values that are not
            possible, or do not fit each other.
    """
    one, other, (kept, out) = _parts(train, test, share, task)
    inputs = _inputs(train, one)
    tested = inputs if test is None else _inputs(test, other)
    owner, owner_tested = _owners(one.client, other.client)
    outputs = _outputs(train, one, other, task, classes)
    return (
        Samples(inputs[kept], one.labels[kept], owner=None if owner is None else owner[kept], classes=outputs),
        Samples(tested[out], other.labels[out], owner=None if owner_tested is None else owner_tested[out]),
    )


def _outputs(raw: Raw, train: _Part, test: _Part, task: Task, classes: int | None) -> int:
    """The number of outputs of a model: those that the labels need, or as many classes as are stated."""
    needed = max(task.outputs(part.labels, None) for part in (train, test))
    if classes is None:
        return needed
    outputs = task.outputs(train.labels, classes)
    if needed > outputs:
        raw.refuse(f"expected labels from 0 to {outputs - 1}, as data.classes says, found {needed - 1}")
    return outputs


def _parts(train: Raw, test: Raw | None, share: float, task: Task) -> tuple[_Part, _Part, tuple[Any, Any]]:
    """Both splits, and the positions of each that are used."""
    one = _checked(train, task)
    if test is None:
        if len(one.labels) < 2:
            train.refuse("expected 2 samples or more, of which one is for testing, found 1")
        return one, one, split_off(strata(one.labels, task), _numbered(one.client), share)
    other = _checked(test, task)
    if other.shape != one.shape:
        test.refuse(
            f"expected inputs of the shape {list(one.shape)}, as in the training data, found {list(other.shape)}"
        )
    if kind_of(other.type, other.shape) != kind_of(one.type, one.shape):
        test.refuse(f"expected inputs of the type {train.type}, as in the training data, found {test.type}")
    columns, found = (part.labels.shape[1:] for part in (one, other))
    if task.label_type.is_floating_point and found != columns:
        test.refuse(
            f"expected labels of the shape {list(columns)} in '{test.names[1]}', as in the training data, found "
            f"{list(found)}"
        )
    kinds = {part.client.dtype.kind == "U" for part in (one, other) if part.client is not None}
    if len(kinds) > 1:
        test.refuse(
            "expected integers or texts as clients in both splits, found integers in one and texts in the other"
        )
    unknown = np.setdiff1d(strata(other.labels, task), strata(one.labels, task))
    if unknown.size:
        test.refuse(f"expected labels that are in the training data, found {unknown[0]} in '{test.names[1]}'")
    return one, other, (slice(None), slice(None))


def _checked(raw: Raw, task: Task) -> _Part:
    name = raw.names[0]
    if raw.type.kind not in "fiub":
        raw.refuse(f"expected numbers in '{name}', found the type {_type(raw.type)}")
    if not raw.shape or 0 in raw.shape:
        raw.refuse(f"expected '{name}' as an array of [samples, ...] that is not empty, found {list(raw.shape)}")
    labels = _labels(raw, task)
    client = None if raw.client is None else _clients(raw, raw.client)
    for found, of in ((labels, raw.names[1]), (client, raw.names[2])):
        if found is not None and len(found) != raw.shape[0]:
            raw.refuse(f"expected as many values in '{of}' as inputs in '{name}', {raw.shape[0]}, found {len(found)}")
    type, shape = _type_stored(raw.type), raw.shape[1:] or (1,)
    if type == np.uint8 and len(shape) == 2:
        return _Part(type, (1, *shape), labels, client)  # grey images
    if raw.channels is None and type == np.uint8 and len(shape) == 3 and shape[0] > 4 and shape[2] <= 4:
        raw.refuse(
            f"expected images in '{name}' as [samples, channels, height, width], found {list(raw.shape)}; set "
            "data.channels to last, or to first if these are images of so many channels"
        )
    if raw.channels == "last":
        if len(shape) < 2:
            raw.refuse(f"data.channels: last expects inputs with channels in '{name}', found {list(raw.shape)}")
        shape = (shape[-1], *shape[:-1])
    return _Part(type, shape, labels, client)


def _type_stored(type: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which inputs are stored: bytes, int16, int32 or float32."""
    if type.kind in "fb":
        return np.dtype(np.float32)
    if type == np.uint8:
        return type
    return np.dtype(np.int16 if type.itemsize == 1 or type == np.int16 else np.int32)


def _inputs(raw: Raw, part: _Part) -> NDArray[Any]:
    values = raw.read()
    if values.dtype.kind == "f":
        place = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
        if place.size:
            raw.refuse(f"expected finite numbers in '{raw.names[0]}', found NaN or an infinity in sample {place[0]}")
    elif values.dtype.itemsize > 2:
        least, most = int(values.min()), int(values.max())
        if most > limits.TOKEN or least < -limits.TOKEN:
            found = most if most > limits.TOKEN else least
            raw.refuse(f"expected integers from -(2^31 - 1) to 2^31 - 1 in '{raw.names[0]}', found {found}")
    with np.errstate(over="ignore"):
        stored = values.astype(part.type, copy=False)
    if stored.dtype.kind == "f" and not np.isfinite(stored).all():
        raw.refuse(f"expected numbers within the range of float32 in '{raw.names[0]}', found {np.abs(values).max()}")
    if raw.channels == "last" and not (part.type == np.uint8 and values.ndim == 3):
        stored = np.moveaxis(stored, -1, 1)
    return np.require(stored.reshape(len(values), *part.shape), requirements=("C", "W"))


def _labels(raw: Raw, task: Task) -> NDArray[Any]:
    try:
        return task.labels(raw.targets)
    except WrongAnswer as error:
        raw.refuse(str(error).replace(", found", f" in '{raw.names[1]}', found", 1))


def _clients(raw: Raw, client: NDArray[Any]) -> NDArray[Any]:
    name = raw.names[2]
    if client.dtype.kind not in "iuU" or client.ndim != 1:
        raw.refuse(
            f"expected the clients in '{name}' as an array of [samples] of integers or texts, found "
            f"{_type(client.dtype)} {list(client.shape)}"
        )
    return client


def _type(type: np.dtype[Any]) -> str:
    """The type in words.

    >>> _type(np.dtype(complex)), _type(np.dtype("<U3"))
    ('complex128', 'text')
    """
    return "text" if type.kind == "U" else str(type)


def _numbered(client: NDArray[Any] | None) -> Integers | None:
    return None if client is None else np.unique(client, return_inverse=True)[1].astype(np.int64)


def _owners(train: NDArray[Any] | None, test: NDArray[Any] | None) -> tuple[Integers | None, Integers | None]:
    """Clients as numbers from 0: those of the training data in ascending order, then those of the test data alone."""
    if train is None:
        return None, None
    names = np.unique(train)
    if test is None:
        return np.searchsorted(names, train), None
    order = np.concatenate([names, np.setdiff1d(test, names)])
    ascending = np.argsort(order, kind="stable")
    return np.searchsorted(names, train), ascending[np.searchsorted(order, test, sorter=ascending)]
