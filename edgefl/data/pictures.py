"""Encoded images of users as one array: their sizes from the headers, and their pixels."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from edgefl import limits
from edgefl.data.arrays import Raw
from edgefl.data.parquet_images import FORMATS
from edgefl.errors import UserError

Made = TypeVar("Made")
Shape = tuple[int, int, int]
Colours = Literal[1, 3]

SIZE = "height and width to which images are resized; null: all images have one size"
COLOURS = "1: convert images to grey; 3: to colour; null: all are grey, or all in colour"
"""The descriptions of these options."""

_KINDS = {1: "a grey image", 3: "a colour image"}


@dataclass(frozen=True)
class Pictures:
    """Images that are decoded when they are needed.

    Attributes:
        count: number of images.
        source: the file of an image, or its bytes.
        name: the place of an image, for messages.
        size: height and width to which images are resized; ``None``: all have one size.
        colours: channels to which images are converted; ``None``: all have as many.
    """

    count: int
    source: Callable[[int], Path | bytes]
    name: Callable[[int], str]
    size: tuple[int, int] | None
    colours: Colours | None

    def shape(self) -> Shape:
        """Channels, height and width, from the headers of all images.

        Raises:
            UserError: a header cannot be read, or images differ.
        """
        first: Shape | None = None
        for index, shape in enumerate(self._each(self._header)):
            first = first or shape
            if shape[0] != first[0]:
                raise self._error(
                    index,
                    f"expected {_KINDS[first[0]]}, as the first one is, found {_KINDS[shape[0]]}; set data.colours to "
                    "1 or 3",
                )
            if shape != first:
                raise self._error(
                    index,
                    f"expected an image of {first[1]}×{first[2]} pixels, as the first one has, found "
                    f"{shape[1]}×{shape[2]}; set data.size",
                )
        assert first is not None
        return first

    def read(self) -> NDArray[np.uint8]:
        """The pixels, ``[images, channels, height, width]``.

        Raises:
            UserError: an image cannot be decoded.
        """
        images = np.empty((self.count, *self.shape()), dtype=np.uint8)
        for index, pixels in enumerate(self._each(self._decoded)):
            images[index] = pixels
        return images

    def raw(self, labels: NDArray[Any], client: NDArray[Any] | None, names: tuple[str, str, str], place: str) -> Raw:
        """The images as the inputs of a split; the other arguments are attributes of :class:`Raw`."""
        shape = self.count, *self.shape()
        return Raw(np.dtype(np.uint8), shape, self.read, labels, client, names, place, "first")

    def _error(self, index: int, message: str) -> UserError:
        return UserError(message, file=self.name(index))

    def _each(self, act: Callable[[int], Made]) -> Iterator[Made]:
        with ThreadPoolExecutor(max_workers=min(16, os.cpu_count() or 1)) as pool:
            yield from pool.map(act, range(self.count))

    def _header(self, index: int) -> Shape:
        with self._opened(index) as image:
            if image.mode.startswith(("I", "F")):
                raise self._error(
                    index, f"expected an image of 8 bits for each channel, found one of the mode {image.mode}"
                )
            channels = self.colours or (1 if image.mode in ("1", "L", "LA") else 3)
            height, width = self.size or (image.height, image.width)
        return channels, height, width

    def _decoded(self, index: int) -> NDArray[np.uint8]:
        from PIL import Image

        channels, height, width = self._header(index)
        try:
            with self._opened(index) as image:
                converted = image.convert("L" if channels == 1 else "RGB")
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise self._error(index, f"this image cannot be decoded ({error})") from None
        if converted.size != (width, height):
            converted = converted.resize((width, height), Image.Resampling.BILINEAR)
        pixels = np.asarray(converted, dtype=np.uint8)
        return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)

    def _opened(self, index: int) -> Any:
        from PIL import Image, UnidentifiedImageError

        source = self.source(index)
        try:
            image = Image.open(BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS)
        except UnidentifiedImageError:
            raise self._error(index, "this is no image that can be decoded") from None
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise self._error(index, f"this image cannot be decoded ({error})") from None
        if image.width * image.height > limits.IMAGE_PIXELS:
            message = f"expected an image of at most {limits.IMAGE_PIXELS} pixels, found {image.height}×{image.width}"
            raise self._error(index, message)
        return image
