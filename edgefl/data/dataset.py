"""A complete data set of images and labels on a device, as bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from edgefl.data.choice import chosen_images
from edgefl.data.content import content_of_pixels
from edgefl.data.location import data_root
from edgefl.data.pixels import Pixels, described
from edgefl.data.sharding import Integers
from edgefl.data.spec import DataSpec, check_channels
from edgefl.errors import UserError


@dataclass(frozen=True, slots=True, eq=False)
class ImageData:
    """A labelled set of images, or of sequences of characters.

    Attributes:
        images: uint8 ``[images, channels, height, width]``, or ``[sequences, length]`` with characters' numbers.
        labels: int64 ``[images]`` on the same device.
        classes: number of classes.
        mean: mean of each channel, of pixels in [0, 1], for normalising batches.
        std: standard deviation, likewise.
        origin: int64 ``[images]`` in main memory: the original of each distorted copy; ``None`` without copies.
        owner: int64 ``[images]`` in main memory: the owner of each image, from 0; ``None`` if the data have no owners.
    """

    images: Tensor
    labels: Tensor
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    origin: Integers | None = None
    owner: Integers | None = None

    def __len__(self) -> int:
        return self.images.shape[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels, height and width of an image, or the length of a sequence."""
        return tuple(self.images.shape[1:])

    @property
    def characters(self) -> bool:
        """Whether these are sequences of characters."""
        return self.images.dim() == 2

    @property
    def device(self) -> torch.device:
        """The device of the images."""
        return self.images.device

    def to(self, device: torch.device | str) -> ImageData:
        """The same images on a device."""
        return replace(self, images=self.images.to(device), labels=self.labels.to(device))

    def part(self, indices: Integers) -> ImageData:
        """The images at these positions, in this order."""
        chosen = torch.from_numpy(indices).to(self.device)
        origin = None if self.origin is None else self.origin[indices]
        owner = None if self.owner is None else self.owner[indices]
        return replace(self, images=self.images[chosen], labels=self.labels[chosen], origin=origin, owner=owner)


def load(spec: DataSpec) -> tuple[ImageData, ImageData]:
    """The training and the test images of ``spec``, in main memory.

    The last set is cached, so that the seeds and methods of a run read it once; do not modify its tensors.

    Raises:
        UserError: files are missing or unreadable, or ``normalise`` does not fit the images.
    """
    train, test, mean, std = _read(_bare(spec), data_root(spec.root))
    if spec.normalise is not None:
        try:
            check_channels(spec.normalise, train.images.shape[1])
        except ValueError as error:
            raise UserError(str(error), field="data.normalise") from None
        mean, std = spec.normalise.mean, spec.normalise.std
    known = spec.known()
    classes = known.classes if known is not None else described(train, test).classes
    training = _image_data(train, classes, mean, std)
    if spec.images is not None:
        if spec.images > len(training):
            raise UserError(f"expected at most {len(training)}, found {spec.images}", field="data.images")
        training = training.part(chosen_images(train.labels, spec.images))
    return training, _image_data(test, classes, mean, std)


def content_of_set(spec: DataSpec) -> str:
    """A digest of the whole set, even if a run uses only a part; read once, as for :func:`load`.

    Raises:
        UserError: files are missing or unreadable.
    """
    return _content(_bare(spec), data_root(spec.root))


_USE = ("images", "clients", "test", "partition", "validation", "augment", "normalise")


def _bare(spec: DataSpec) -> DataSpec:
    """The spec without the options that do not change the pixels."""
    return type(spec).model_construct(
        **{name: getattr(spec, name) for name in type(spec).model_fields if name not in _USE},
        **{name: type(spec).model_fields[name].get_default() for name in _USE},
    )


@lru_cache(maxsize=1)
def _content(spec: DataSpec, root: Path) -> str:
    train, test, _, _ = _read(spec, root)
    return content_of_pixels(train, test)


@lru_cache(maxsize=1)
def _read(spec: DataSpec, _root: Path) -> tuple[Pixels, Pixels, tuple[float, ...], tuple[float, ...]]:
    """The pixels and their statistics; ``_root`` is in the key because the environment may change it."""
    try:
        train, test = spec.pixels()
        known = spec.known()
    except UserError as error:
        raise error.located(field="data") from error.__cause__
    if known is not None and known.mean is not None and known.std is not None:
        return train, test, known.mean, known.std
    if train.images.ndim == 2:  # characters are table indices, which are not normalised
        return train, test, (), ()
    return train, test, *channel_statistics(train)


def channel_statistics(pixels: Pixels) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel, of pixels in [0, 1]; exact, from a histogram of the 256 values.

    A constant channel has deviation 1, so that normalising never divides by zero.
    """
    values = np.arange(256) / 255
    means, deviations = [], []
    for channel in range(pixels.images.shape[1]):
        histogram = sum(
            (np.bincount(chunk[:, channel].ravel(), minlength=256) for chunk in _chunks(pixels.images)),
            start=np.zeros(256, dtype=np.int64),
        )
        share = histogram / histogram.sum()
        mean = float(share @ values)
        means.append(mean)
        deviations.append(float(np.sqrt(share @ (values - mean) ** 2)) or 1.0)
    return tuple(means), tuple(deviations)


def _chunks(images: np.ndarray) -> Iterator[np.ndarray]:
    return (images[start : start + 4096] for start in range(0, len(images), 4096))


def _image_data(pixels: Pixels, classes: int, mean: tuple[float, ...], std: tuple[float, ...]) -> ImageData:
    return ImageData(
        images=torch.from_numpy(pixels.images),
        labels=torch.from_numpy(pixels.labels),
        classes=classes,
        mean=mean,
        std=std,
        origin=pixels.origin,
        owner=pixels.owner,
    )
