"""The scenario's ``data`` section: which images, for how many clients, cut how; and what every data set must offer."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from edgefl.errors import UserError
from edgefl.learning.component import Component
from edgefl.learning.data.augment import Augmentation
from edgefl.learning.data.choice import class_counts
from edgefl.learning.data.partitions import AnyPartition, Iid
from edgefl.learning.data.sharding import Integers
from edgefl.registry import Registry, class_of


class Pixels(NamedTuple):
    """Images, or sequences of characters, as a data set hands them over.

    Attributes:
        images: uint8 ``[images, channels, height, width]``, or ``[sequences, length]`` with characters' numbers.
        labels: int64 ``[images]``, from 0.
        origin: int64 ``[images]``: equal numbers mark distorted copies of one original; ``None`` where there are none.
        owner: int64 ``[images]``: whose each is, from 0, for the natural partition; ``None`` where nobody knows.
        classes: how many classes there are, where the labels need not hold the last one.
    """

    images: NDArray[np.uint8]
    labels: Integers
    origin: Integers | None = None
    owner: Integers | None = None
    classes: int | None = None


@dataclass(frozen=True, slots=True)
class Description:
    """What is known of a data set without its pixels.

    Attributes:
        classes: how many classes there are.
        shape: channels, height and width of an image, or the length of a sequence.
        train: training images of each class, ``classes`` numbers.
        test: test images of each class.
        mean: per channel, of pixels in [0, 1]; ``None`` where it must be computed from the training images.
        std: standard deviation, likewise.
    """

    classes: int
    shape: tuple[int, ...]
    train: tuple[int, ...]
    test: tuple[int, ...]
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None


class Normalisation(Component):
    """Means and deviations that replace the data set's own, for pixels in [0, 1], one number a channel."""

    mean: tuple[float, ...] = Field(min_length=1, description="subtracted, one number for each channel")
    std: tuple[float, ...] = Field(min_length=1, description="divided by, one positive number for each channel")

    @model_validator(mode="after")
    def _positive(self) -> Self:
        if len(self.mean) != len(self.std) or not all(deviation > 0 for deviation in self.std):
            raise ValueError(
                f"expected as many positive standard deviations as means, found mean {list(self.mean)} and std "
                f"{list(self.std)}"
            )
        return self


class DataSpec(Component):
    """A data set and how it is used. Every data set is a subclass with its own ``name`` and further options.

    A subclass gives ``name`` the type ``Literal["its_name"]`` with that default, implements :meth:`declared` and
    :meth:`read`, and is registered in :data:`DATA_SETS` or by an entry point of the group ``edgefl.datasets``.
    """

    name: str = Field(description="the data set")
    root: str | None = Field(
        default=None, description="folder of the data files; null: $EDGEFL_DATA, else the user's cache directory"
    )
    images: int | None = Field(
        default=None,
        ge=1,
        description="training images to use, a fixed choice in the set's own class proportions; null: all",
    )
    clients: int = Field(default=100, ge=1, description="clients that share the training images")
    test: Literal["whole", "partitioned"] = Field(
        default="whole",
        description="whole: every client is tested on the whole test set; partitioned: on a part with the class "
        "proportions of its training data (personalisation)",
    )
    partition: AnyPartition = Field(default=Iid(), description="how the training images are spread over the clients")
    validation: float = Field(
        default=0.1,
        gt=0,
        lt=1,
        description="share of the training images held out where the validation split is evaluated, and only there",
    )
    augment: Augmentation = Field(
        default="none",
        description="none; crop_flip: 4 pixels of padding, random crop and horizontal flip; rotate_crop_flip: a "
        "rotation by up to 10 degrees before (FedMLB)",
    )
    normalise: Normalisation | None = Field(default=None, description="mean and std; null: the data set's own")

    @abstractmethod
    def declared(self) -> Description | None:
        """What is known before any file is read; ``None`` where the files decide."""

    @abstractmethod
    def read(self) -> tuple[Pixels, Pixels]:
        """The training and the test images, read, made or downloaded.

        Raises:
            UserError: files are missing or unreadable; the message names the folder.
        """

    def found(self) -> Description:
        """What the files say, for sets that declare nothing.

        Raises:
            UserError: as :meth:`read`.
        """
        return described(*self.read())

    def describe(self) -> Description:
        """The images that are used, without their pixels; reads files where :meth:`declared` does not say.

        Raises:
            UserError: as :meth:`read`, or there are not as many images as are to be used.
        """
        known = self.declared() or self.found()
        if self.images is not None and self.images > sum(known.train):
            raise UserError(f"expected at most {sum(known.train)}, found {self.images}", field="images")
        return self._used(known)

    def _used(self, known: Description) -> Description:
        """The description with the training images that are used."""
        if self.images is None:
            return known
        return replace(known, train=tuple(class_counts(known.train, self.images).tolist()))

    @model_validator(mode="after")
    def _can_be_cut(self) -> Self:
        known = self.declared()
        if known is not None:
            if self.images is not None and self.images > sum(known.train):
                raise ValueError(
                    f"images: expected at most {sum(known.train)}, as many as there are, found {self.images}"
                )
            known = self._used(known)
            if self.normalise is not None:
                check_channels(self.normalise, known.shape[0])
            try:
                self.partition.check(np.array(known.train), self.clients)
            except UserError as error:
                raise ValueError(error.message) from None
            if self.test == "partitioned" and self.clients > sum(known.test):
                raise ValueError(
                    f"test: partitioned expects at most {sum(known.test)} clients, one for each test image, found "
                    f"{self.clients}"
                )
        return self


DATA_SETS: Registry[type[DataSpec]] = Registry(
    "data set", package="edgefl.learning.data.sets", group="edgefl.datasets", check=class_of(DataSpec)
)
"""The data sets by name."""


def described(train: Pixels, test: Pixels) -> Description:
    """The description of images that have been read; mean and deviation are left open.

    >>> images = np.zeros((2, 1, 4, 4), dtype=np.uint8)
    >>> described(Pixels(images, np.array([0, 1])), Pixels(images, np.array([1, 1]))).test
    (0, 2)
    """
    classes = train.classes or int(max(train.labels.max(), test.labels.max())) + 1
    return Description(
        classes=classes,
        shape=train.images.shape[1:],
        train=tuple(np.bincount(train.labels, minlength=classes).tolist()),
        test=tuple(np.bincount(test.labels, minlength=classes).tolist()),
    )


def check_channels(normalisation: Normalisation, channels: int) -> None:
    """Whether a normalisation fits images of that many channels.

    Raises:
        ValueError: it does not.
    """
    if len(normalisation.mean) != channels:
        raise ValueError(f"normalise expects {channels} number(s) for mean and std, found {len(normalisation.mean)}")
