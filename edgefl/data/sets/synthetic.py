"""Synthetic images of any shape and number, for timing, tests and experiments."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from edgefl.data.sharding import Integers
from edgefl.data.spec import DATA_SETS, DataSpec, Description, Samples, or_else
from edgefl.randomness import generator

_PATCH = 4
"""Patterns consist of squares with this side in pixels, so that pooling does not remove them."""

Side = Annotated[int, Field(ge=1, le=4096)]


@DATA_SETS.register("synthetic")
class Synthetic(DataSpec):
    """Weak copies of a random pattern of each class, with uniform noise; the same options give the same images."""

    short_test = "test_images", int

    name: Literal["synthetic"] = Field(default="synthetic", description="synthetic images of any shape and number")
    shape: tuple[Side, Side, Side] = Field(default=(1, 28, 28), description="channels, height and width")
    classes: int = Field(default=10, ge=2, le=100_000, description="classes")
    train: int = Field(default=10_000, ge=1, le=10**8, description="training images")
    test: Literal["whole", "partitioned"] = Field(
        default="whole",
        description="whole, or partitioned with the class proportions of each client's training data; a number: whole, "
        "with this number of test images",
        json_schema_extra=or_else({"minimum": 1, "type": "integer"}),
    )
    test_images: int = Field(default=2_000, ge=1, le=10**8, description="number of test images; same as `test: N`")
    signal: float = Field(0.25, gt=0, le=1, description="strength of the pattern; noise has the rest of the range")
    images_seed: int = Field(default=0, ge=0, description="seed of the images")

    @model_validator(mode="after")
    def _has_images_of_each_class(self) -> Synthetic:
        if self.classes > min(self.train, self.test_images):
            raise ValueError(
                f"expected an image of each class at least, found {self.classes} classes, {self.train} training and "
                f"{self.test_images} test images"
            )
        return self

    def declared(self) -> Description:
        # Images 0, 1, 2, … belong to classes 0, 1, 2, … in turn.
        counts = (divmod(images, self.classes) for images in (self.train, self.test_images))
        train, test = (tuple(each + (label < rest) for label in range(self.classes)) for each, rest in counts)
        return Description(self.classes, self.shape, train, test)

    def read(self) -> tuple[Samples, Samples]:
        rng = generator(self.images_seed, "synthetic images")
        channels, height, width = self.shape
        coarse = rng.random((self.classes, channels, -(-height // _PATCH), -(-width // _PATCH)))
        fine = np.repeat(np.repeat(coarse, _PATCH, axis=2), _PATCH, axis=3)[:, :, :height, :width]
        patterns = np.rint(fine * 255 * self.signal).astype(np.uint8)
        return self._images(patterns, self.train, rng), self._images(patterns, self.test_images, rng)

    def _images(self, patterns: NDArray[np.uint8], count: int, rng: np.random.Generator) -> Samples:
        labels: Integers = np.arange(count) % self.classes
        images = np.empty((count, *self.shape), dtype=np.uint8)
        noise = 255 - int(patterns.max())
        for start in range(0, count, 4096):
            part = labels[start : start + 4096]
            grain = rng.integers(0, noise, size=(len(part), *self.shape), dtype=np.uint8, endpoint=True)
            images[start : start + 4096] = patterns[part] + grain
        return Samples(images, labels)
