"""Encoded images as one array: their sizes from the headers, their pixels as a viewer shows them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from edgefl.data.sharding import Integers
from edgefl.errors import UserError

Made = TypeVar("Made")
Colours = Literal[1, 3]
Shape = tuple[int, int, int]

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF")
"""The supported encodings; no other decoder is applied to a file's bytes."""

_GREY = ("1", "L", "LA")
"""Pillow's modes of images with one channel."""
_ORIENTATION = 0x0112
"""The EXIF tag of a photo's orientation; with 5 to 8, height and width are exchanged."""
_CHUNK = 64
"""Images that a thread decodes at a time."""


@dataclass(frozen=True, eq=False)
class Pictures:
    """Images that are decoded when they become an array: ``np.asarray`` gives ``[images, channels, height, width]``."""

    source: Callable[[int], Path | bytes | None]  # the file or the bytes of an image
    name: Callable[[int], str]  # the place of an image, for messages
    numbers: Integers  # the images, numbers for source and name
    size: tuple[int, int] | None = None  # height and width to which images are resized; None: all have one size
    # channels to which images are converted; None: 1 if the first 64 images are grey, else 3
    colours: Colours | None = None

    dtype = np.dtype(np.uint8)

    @classmethod
    def of_files(
        cls, paths: Sequence[Path | str], size: tuple[int, int] | None = None, colours: Colours | None = None
    ) -> Pictures:
        return cls(lambda at: Path(paths[at]), lambda at: str(paths[at]), np.arange(len(paths)), size, colours)

    def __getitem__(self, chosen: Integers) -> Pictures:
        return replace(self, numbers=self.numbers[chosen], colours=1 if self._first[0] == 1 else 3)

    @property
    def names(self) -> list[str]:
        return [self.name(index) for index in self.numbers.tolist()]

    @cached_property
    def shape(self) -> tuple[int, int, int, int]:
        """Images, channels, height and width, from the headers of all images."""
        for index, sides in self._each(self._sides):
            self._check(index, sides)
        return len(self.numbers), *self._first

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[np.uint8]:
        images = np.empty((len(self.numbers), *self._first), dtype=np.uint8)
        for place, (index, pixels) in enumerate(self._each(self._decoded)):
            self._check(index, pixels.shape[1:])
            images[place] = pixels
        return images

    @cached_property
    def _first(self) -> Shape:
        """Channels, height and width."""
        first = self.numbers[:_CHUNK].tolist()
        colours = self.colours or (1 if all(self._is_grey(index) for index in first) else 3)
        return colours, *self._sides(first[0])

    def _check(self, index: int, sides: tuple[int, ...]) -> None:
        _, height, width = self._first
        if sides != (height, width):
            raise self._error(
                index,
                f"expected an image of {height}×{width} pixels, as the first one has, found {sides[0]}×{sides[1]}; set "
                "data.size",
            )

    def _error(self, index: int, message: str) -> UserError:
        return UserError(message, file=self.name(index))

    def _each(self, act: Callable[[int], Made]) -> Iterator[tuple[int, Made]]:
        numbers = self.numbers.tolist()

        def several(start: int) -> list[tuple[int, Made]]:
            return [(index, act(index)) for index in numbers[start : start + _CHUNK]]

        with ThreadPoolExecutor(max_workers=min(16, os.cpu_count() or 1)) as pool:
            yield from chain.from_iterable(pool.map(several, range(0, len(numbers), _CHUNK)))

    def _is_grey(self, index: int) -> bool:
        with self._opened(index) as image:
            return image.mode in _GREY

    def _sides(self, index: int) -> tuple[int, int]:
        """Height and width from the header."""
        if self.size is not None:
            return self.size
        with self._opened(index) as image:
            return (image.width, image.height) if _orientation(image) > 4 else (image.height, image.width)

    def _decoded(self, index: int) -> NDArray[np.uint8]:
        from PIL import Image, ImageOps

        channels = self._first[0]
        with self._opened(index) as image:
            turned = ImageOps.exif_transpose(image) if _orientation(image) > 1 else image
            converted = turned.convert("L" if channels == 1 else "RGB")
        if self.size is not None and converted.size != self.size[::-1]:
            converted = converted.resize(self.size[::-1], Image.Resampling.BILINEAR)
        pixels = np.asarray(converted, dtype=np.uint8)
        return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)

    @contextmanager
    def _opened(self, index: int) -> Iterator[Any]:
        from PIL import Image, UnidentifiedImageError

        source = self.source(index)
        if source is None:
            raise self._error(index, "expected an image inside the data, found only a path")
        try:
            with Image.open(BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS) as image:
                if image.mode.startswith(("I", "F")):
                    message = f"expected an image of 8 bits for each channel, found one of the mode {image.mode}"
                    raise self._error(index, message)
                yield image
        except UnidentifiedImageError:
            raise self._error(index, "this is no image that can be decoded") from None
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise self._error(index, f"this image cannot be decoded ({error})") from None


def _orientation(image: Any) -> int:
    """The EXIF orientation that Pillow does not apply on its own, as it does for TIFF."""
    if image.format == "TIFF" or (image.format == "PNG" and not any("exif" in str(key) for key in image.info)):
        return 1  # of a PNG without the tag in its header, getexif would decode the whole image
    return int(image.getexif().get(_ORIENTATION, 1))
