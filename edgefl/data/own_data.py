"""Data of users' own files and functions: arrays with their checks, and what such data sets have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from edgefl.data.choice import split_off
from edgefl.data.samples import Description, Samples, kind_of, strata
from edgefl.data.sharding import Integers
from edgefl.data.spec import DataSpec
from edgefl.errors import UserError, WrongAnswer
from edgefl.tasks.base import MOST_CLASSES, Task

if TYPE_CHECKING:
    from edgefl.data.pictures import Pictures

Channels = Literal["first", "last"]


class Raw(NamedTuple):
    """The arrays of one split, as a file or a function gives them.

    Attributes:
        inputs: ``[samples, …]``; pictures are decoded when they are needed.
        names: the names of inputs, labels and clients in messages.
        place: the file or folder of the arrays, for messages.
        channels: the place of the channels in the inputs; ``None``: first, unless the shape looks like last.
    """

    inputs: NDArray[Any] | Pictures
    targets: NDArray[Any]
    client: NDArray[Any] | None
    names: tuple[str, str, str]
    place: str
    channels: Channels | None = None

    def refuse(self, message: str) -> NoReturn:
        raise UserError(message, file=self.place)


class OwnData(DataSpec):
    """Data of the user: arrays of inputs, labels and, if it is known, clients."""

    test_share: float = Field(
        default=0.2,
        gt=0,
        lt=1,
        description="share of the samples to test on if there are no test data; the same in every run",
    )

    classes: int | None = Field(
        default=None,
        ge=1,
        le=MOST_CLASSES,
        description="number of classes or tokens, if the training data may not contain the last one; null: as found",
    )

    def declared(self) -> None:
        return

    @model_validator(mode="after")
    def _indices_are_known(self) -> Self:
        if self.partition.kind == "file" and not self.tests():
            raise ValueError("partition file counts the samples of the training data, so test data must be given")
        return self

    def tests(self) -> bool:
        """True if there are test data of their own, as far as the options determine it."""
        return True

    @abstractmethod
    def raw(self) -> tuple[Raw, Raw | None]:
        """The training arrays, and the test arrays if there are any.

        Raises:
            UserError: they are missing or cannot be read.
        """

    def found(self) -> Description:
        """The description; pictures are not decoded."""
        return description_of(*self.raw(), self.test_share, self.task, self.classes)

    def read(self) -> tuple[Samples, Samples]:
        return samples_of(*self.raw(), self.test_share, self.task, self.classes)


class OwnArrays(OwnData):
    """Data whose inputs may be images with channels first or last."""

    channels: Channels | None = Field(
        default=None, description="place of the channels in the inputs, first or last; null: first"
    )


def _or_a_path(schema: dict[str, Any]) -> None:
    choices = schema.pop("enum")
    schema["anyOf"] = [{"enum": choices, "type": schema.pop("type")}, {"type": "string"}]


class SplitData(OwnData):
    """Data with a place for each split; a subclass has the fields ``train`` and ``test_data``."""

    test: Literal["whole", "partitioned"] = Field(
        default="whole",
        description="whole, or partitioned with the class proportions of each client's training data, or by client if "
        "the test data name clients; a path: whole, with these test data",
        json_schema_extra=_or_a_path,
    )

    test_data: str | None = None

    def tests(self) -> bool:
        return self.test_data is not None

    @model_validator(mode="before")
    @classmethod
    def _test_data(cls, data: Any) -> Any:
        """Interpret another text in ``test`` as ``test_data``."""
        if (
            isinstance(data, dict)
            and isinstance(data.get("test"), str)
            and data["test"] not in ("whole", "partitioned")
        ):
            if data.get("test_data", data["test"]) != data["test"]:
                raise ValueError(f"expected one place of test data, found {data['test']} and {data['test_data']}")
            return {**data, "test": "whole", "test_data": data["test"]}
        return data


class _Part(NamedTuple):
    """A checked split without its inputs: their type and shape, labels and clients."""

    type: np.dtype[Any]
    shape: tuple[int, ...]
    labels: NDArray[Any]
    client: NDArray[Any] | None


def description_of(train: Raw, test: Raw | None, share: float, task: Task, classes: int | None = None) -> Description:
    """The description of the samples of :func:`samples_of`; pictures are not decoded."""
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

    Without test arrays, a share of the training arrays is the test data. ``classes`` is the number of classes or
    tokens, if the labels may not contain the last one.

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
        test.refuse(
            f"expected inputs of the type {train.inputs.dtype}, as in the training data, found {test.inputs.dtype}"
        )
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
    name, inputs = raw.names[0], raw.inputs
    if inputs.dtype.kind not in "fiub":
        raw.refuse(f"expected numbers in '{name}', found the type {_type(inputs.dtype)}")
    if not inputs.shape or 0 in inputs.shape:
        raw.refuse(f"expected '{name}' as an array of [samples, ...] that is not empty, found {list(inputs.shape)}")
    labels = _labels(raw, task)
    client = None if raw.client is None else _clients(raw, raw.client)
    for found, of in ((labels, raw.names[1]), (client, raw.names[2])):
        if found is not None and len(found) != inputs.shape[0]:
            raw.refuse(
                f"expected as many values in '{of}' as inputs in '{name}', {inputs.shape[0]}, found {len(found)}"
            )
    type, shape = _type_stored(inputs.dtype), inputs.shape[1:] or (1,)
    if type == np.uint8 and len(shape) == 2:
        return _Part(type, (1, *shape), labels, client)  # grey images
    if raw.channels is None and type == np.uint8 and len(shape) == 3 and shape[0] > 4 and shape[2] <= 4:
        raw.refuse(
            f"expected images in '{name}' as [samples, channels, height, width], found {list(inputs.shape)}; set "
            "data.channels to last, or to first if these are images of so many channels"
        )
    if raw.channels == "last":
        if len(shape) < 2:
            raw.refuse(f"data.channels: last expects inputs with channels in '{name}', found {list(inputs.shape)}")
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
    values = np.asarray(raw.inputs)
    if values.dtype.kind == "f":
        place = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
        if place.size:
            raw.refuse(f"expected finite numbers in '{raw.names[0]}', found NaN or an infinity in sample {place[0]}")
    elif values.dtype.itemsize > 2:
        least, most = int(values.min()), int(values.max())
        if max(most, -least) > 2**31 - 1:
            found = most if most > 2**31 - 1 else least
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
