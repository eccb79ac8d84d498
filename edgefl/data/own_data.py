"""Data of users' own files and functions: what such data sets have in common, and how their arrays become samples."""

import warnings
from abc import abstractmethod
from dataclasses import replace
from typing import Any, Literal, NamedTuple, NoReturn, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from edgefl.data.array_files import ArrayFile
from edgefl.data.choice import split_off
from edgefl.data.pictures import Colours, Pictures
from edgefl.data.samples import Kind, Samples, WrongSamples, checked_samples, strata
from edgefl.data.sharding import Integers
from edgefl.data.spec import DataSpec, or_else
from edgefl.errors import Note, UserError, WrongAnswer
from edgefl.tasks.base import MOST_CLASSES

Channels = Literal["first", "last"]


class Raw(NamedTuple):
    """The arrays of one split, as a file or a function gives them."""

    inputs: NDArray[Any] | Pictures  # [samples, …]; pictures are decoded when they are needed
    targets: NDArray[Any] | Pictures
    client: NDArray[Any] | Pictures | None
    names: tuple[str, str, str]  # the names of inputs, labels and clients in messages
    place: str  # the file or folder of the arrays, for messages
    classes: int | None = None  # number of classes, if the data state it

    @classmethod
    def of(
        cls, file: ArrayFile, inputs: str | tuple[str, ...], target: str, client: str | None, classes: int | None = None
    ) -> Self:
        """The arrays of these names; several inputs are columns that make one."""
        names = inputs if isinstance(inputs, str) else ", ".join(inputs), target, client or ""
        clients = None if client is None else file.read(client)
        return cls(file.read(inputs), file.read(target), clients, names, file.place, classes)

    def refuse(self, message: str) -> NoReturn:
        raise UserError(message, file=self.place)

    def plain(self, values: NDArray[Any] | Pictures, name: str) -> NDArray[Any]:
        if isinstance(values, Pictures):
            self.refuse(f"expected numbers or texts in '{name}', found images")
        return values


class OwnData(DataSpec):
    """Data of the user: arrays of inputs, labels and, if it is known, clients."""

    test_share: float = Field(0.2, gt=0, lt=1, description="share to test on if there are no test data, fixed")
    classes: int | None = Field(
        None, ge=1, le=MOST_CLASSES, description="if the training data may lack classes or tokens; null: as found"
    )

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
        """The training arrays, and the test arrays if there are any."""

    def checked(self) -> tuple[Samples, Samples]:
        """The samples of :meth:`read`."""
        train, test = self.raw()
        try:
            return checked_samples(self._samples(train, test), None, self.task)
        except WrongSamples as error:
            raw = test if test is not None and error.split == "test" else train
            raw.refuse(str(error))

    def read(self) -> tuple[Samples, Samples]:
        return self._samples(*self.raw())

    def stored(self, raw: Raw, like: Samples | None) -> Any:
        """Inputs as they are stored, of the kind of the training samples ``like``, or as found."""
        if isinstance(raw.inputs, Pictures) and like is not None:
            return replace(raw.inputs, colours=like.inputs.shape[1])
        return raw.inputs

    def _samples(self, train: Raw, test: Raw | None) -> tuple[Samples, Samples]:
        """The samples of the splits; without test arrays, a share of the training arrays is the test data."""
        one = self._split(train, None)
        if test is None:
            if len(one.labels) < 2:
                train.refuse("expected 2 samples or more, of which one is for testing, found 1")
            owner = None if one.owner is None else np.unique(one.owner, return_inverse=True)[1].astype(np.int64)
            kept, out = split_off(strata(one.labels, self.task), owner, self.test_share)
            return _part(one._replace(owner=owner), kept), _part(one._replace(owner=owner), out)
        other = self._split(test, one)
        if _same(train.inputs, test.inputs) and np.array_equal(one.labels, other.labels):
            warnings.warn(
                f"{test.place}: the test data are the training data, so accuracies are those of training; leave them "
                "out, so that data.test_share of the samples are for testing",
                Note,
                stacklevel=1,
            )
        if self.task.classes and (unknown := np.setdiff1d(other.labels, one.labels)).size and self.classes is None:
            test.refuse(
                f"expected labels that are in the training data, found {unknown[0]} in '{test.names[1]}'; set "
                "data.classes to the number of classes if the training data lack some of them"
            )
        if one.owner is None or other.owner is None:
            owners = None if one.owner is None else _owners(one.owner, one.owner)[0]
            return one._replace(owner=owners), other._replace(owner=None)
        if {one.owner.dtype.kind == "U", other.owner.dtype.kind == "U"} == {True, False}:
            test.refuse("expected the clients of both splits as integers, or of both as texts, found one of each")
        owner, tested = _owners(one.owner, other.owner)
        return one._replace(owner=owner), other._replace(owner=tested)

    def _split(self, raw: Raw, train: Samples | None) -> Samples:
        inputs = self.stored(raw, train)
        try:
            labels = self.task.labels(raw.plain(raw.targets, raw.names[1]))
        except WrongAnswer as error:
            raw.refuse(str(error).replace(", found", f" in '{raw.names[1]}', found", 1))
        client = None if raw.client is None else raw.plain(raw.client, raw.names[2])
        count = inputs.shape[0]
        if client is not None and (client.dtype.kind not in "iuU" or client.ndim != 1):
            raw.refuse(
                f"expected the clients in '{raw.names[2]}' as an array of [samples] of integers or texts, found "
                f"{type_of(client.dtype)} {list(client.shape)}"
            )
        for found, name in ((labels, raw.names[1]), (client, raw.names[2])):
            if found is not None and len(found) != count:
                raw.refuse(f"expected as many values in '{name}' as in '{raw.names[0]}', {count}, found {len(found)}")
        classes = self.classes or raw.classes
        if self.task.classes and classes is None and train is None:
            sizes = np.bincount(labels)
            if not sizes.all():
                raw.refuse(
                    f"expected training samples of each class from 0 to {len(sizes) - 1} in '{raw.names[1]}', found "
                    f"none of class {sizes.argmin()}; number the classes from 0 without gaps, or set data.classes to "
                    f"{len(sizes)}: outputs without samples do no harm"
                )
        return Samples(inputs, labels, owner=client, classes=classes)


class Encoded(OwnData):
    """Data whose inputs may be encoded images."""

    size: tuple[int, int] | None = Field(None, description="height and width to resize to; null: all have one size")
    colours: Colours | None = Field(None, description="1: grey; 3: colour; null: grey if the first 64 images are")


class OwnArrays(OwnData):
    """Data whose inputs may be arrays of any kind."""

    channels: Channels | None = Field(None, description="place of the channels in inputs, first or last; null: first")
    kind: Kind | None = Field(
        None, description="images: bytes; tokens: whole numbers for an embedding; null: by type and shape"
    )

    def stored(self, raw: Raw, like: Samples | None) -> Any:
        if isinstance(raw.inputs, Pictures):
            return super().stored(raw, like)
        name, values = raw.names[0], raw.inputs
        if values.dtype.kind not in "fiub":
            raw.refuse(f"expected numbers in '{name}', found the type {type_of(values.dtype)}")
        if not values.shape or 0 in values.shape:
            raw.refuse(f"expected '{name}' as an array of [samples, ...] that is not empty, found {list(values.shape)}")
        values = values[:, None] if values.ndim == 1 else values
        kind = like.kind if like else self.kind or self._kind(raw, values)
        stored = _STORED[kind](raw, values)
        if kind == "images" and values.ndim == 3:
            stored = stored[:, None]
        elif self.channels == "last":
            if values.ndim < 3:
                raw.refuse(f"data.channels: last expects inputs with channels in '{name}', found {list(values.shape)}")
            stored = np.moveaxis(stored, -1, 1)
        elif self.channels is None and kind == "images" and values.shape[1] > 4 and values.shape[3] <= 4:
            raw.refuse(
                f"expected images in '{name}' as [samples, channels, height, width], found {list(values.shape)}; set "
                "data.channels to last, or to first if these are images of so many channels"
            )
        return np.require(stored, requirements=("C", "W"))

    def _kind(self, raw: Raw, values: NDArray[Any]) -> Kind:
        """What inputs are by their type and shape: integers that cannot be tokens are numbers."""
        if values.dtype.kind in "fb":
            return "numbers"
        if values.dtype == np.uint8 and values.ndim in (3, 4):
            return "images"
        if values.ndim > 2:
            raw.refuse(
                f"'{raw.names[0]}' has integers, {values.dtype} {list(values.shape)}, which may be pixels, "
                "measurements or tokens; set data.kind to images, numbers or tokens"
            )
        return "tokens" if values.min() >= 0 and values.max() < MOST_CLASSES else "numbers"


def _as_numbers(raw: Raw, values: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(over="ignore"):
        stored = values.astype(np.float32, copy=False)
    finite = np.isfinite(stored).reshape(len(stored), -1).all(axis=1)
    if not finite.all():
        sample = int(finite.argmin())
        found = values[sample][~np.isfinite(stored[sample])][0]
        raw.refuse(f"expected finite numbers of float32 in '{raw.names[0]}', found {found} in sample {sample}")
    return stored


def _as_images(raw: Raw, values: NDArray[Any]) -> NDArray[Any]:
    least, most = values.min(), values.max()
    if values.dtype.kind not in "iu" or least < 0 or most > 255 or values.ndim not in (3, 4):
        raw.refuse(
            f"expected images in '{raw.names[0]}' as whole numbers from 0 to 255 [samples, channels, height, width], "
            f"found {values.dtype} {list(values.shape)} from {least} to {most}"
        )
    return values.astype(np.uint8, copy=False)


def _as_tokens(raw: Raw, values: NDArray[Any]) -> NDArray[Any]:
    least, most = values.min(), values.max()
    if values.dtype.kind not in "iu" or max(int(most), -int(least)) > 2**31 - 1:
        raw.refuse(
            f"expected integers from -(2^31 - 1) to 2^31 - 1 in '{raw.names[0]}', the tokens, found {values.dtype} "
            f"from {least} to {most}"
        )
    if values.dtype == np.uint8 and values.ndim == 2:
        return values
    return values.astype(np.int16 if values.dtype.itemsize == 1 or values.dtype == np.int16 else np.int32, copy=False)


_STORED = {"images": _as_images, "numbers": _as_numbers, "tokens": _as_tokens}


class SplitData(OwnData):
    """Data with a place for each split; a subclass has the fields ``train`` and ``test_data``."""

    short_test = "test_data", str

    test: Literal["whole", "partitioned"] = Field(
        default="whole",
        description="whole, or partitioned with the class proportions of each client's training data, or by client if "
        "the test data name clients; a path: whole, with these test data",
        json_schema_extra=or_else({"type": "string"}),
    )

    test_data: str | None = None

    def tests(self) -> bool:
        return self.test_data is not None


def type_of(type: np.dtype[Any]) -> str:
    """The name of a type in messages."""
    if type.kind == "V":
        return f"{type}, which NumPy does not know (save bfloat16 as float32)"
    return "text" if type.kind == "U" else str(type)


def _part(samples: Samples, chosen: Integers) -> Samples:
    owner = None if samples.owner is None else samples.owner[chosen]
    return samples._replace(inputs=samples.inputs[chosen], labels=samples.labels[chosen], owner=owner)


def _same(one: NDArray[Any] | Pictures, other: NDArray[Any] | Pictures) -> bool:
    if isinstance(one, Pictures) or isinstance(other, Pictures):
        return isinstance(one, Pictures) and isinstance(other, Pictures) and one.names == other.names
    return one is other or (one.dtype == other.dtype and np.array_equal(one, other))


def _owners(train: NDArray[Any], test: NDArray[Any]) -> tuple[Integers, Integers]:
    """Clients as numbers from 0: those of the training data in ascending order, then those of the test data alone."""
    names = np.unique(train)
    order = np.concatenate([names, np.setdiff1d(test, names)])
    ascending = np.argsort(order, kind="stable")
    return np.searchsorted(names, train), ascending[np.searchsorted(order, test, sorter=ascending)]
