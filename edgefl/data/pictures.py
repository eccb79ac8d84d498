"""Encoded images as one array: their sizes from the headers, their pixels, and columns of them in Parquet files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from edgefl.data.samples import Samples
from edgefl.data.sharding import Integers
from edgefl.errors import UserError, nearest

Made = TypeVar("Made")
Colours = Literal[1, 3]
Shape = tuple[int, int, int]

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF")
"""The supported encodings; no other decoder is applied to a file's bytes."""

SIZE = "height and width to which images are resized; null: all images have one size"
COLOURS = "1: convert images to grey; 3: to colour; null: all are grey, or all in colour"

_GREY = ("1", "L", "LA")
"""Pillow's modes of images with one channel."""
_KINDS = {1: "a grey image", 3: "a colour image"}
_CHUNK = 64
"""Images that a thread decodes at a time."""


@dataclass(frozen=True)
class Pictures:
    """Images that are decoded when they become an array: ``np.asarray`` gives ``[images, channels, height, width]``.

    Attributes:
        name: the place of an image, for messages.
        size: height and width to which images are resized; ``None``: all have one size.
        colours: channels to which images are converted; ``None``: all have as many.
        like: the required channels, height and width; ``None``: those of the first image.
    """

    count: int
    source: Callable[[int], Path | bytes]
    name: Callable[[int], str]
    size: tuple[int, int] | None = None
    colours: Colours | None = None
    like: Shape | None = None

    dtype = np.dtype(np.uint8)

    @cached_property
    def shape(self) -> tuple[int, int, int, int]:
        """Images, channels, height and width, from the headers of all images.

        Raises:
            UserError: a header cannot be read, or images differ.
        """
        for index, shape in enumerate(self._each(self._header)):
            self._check(index, shape)
        return self.count, *self._first

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[np.uint8]:
        images = np.empty((self.count, *self._first), dtype=np.uint8)
        for index, pixels in enumerate(self._each(self._decoded)):
            self._check(index, pixels.shape)
            images[index] = pixels
        return images

    @cached_property
    def _first(self) -> Shape:
        return self.like or self._header(0)

    def _check(self, index: int, shape: tuple[int, ...]) -> None:
        channels, height, width = self._first
        if shape[0] != channels:
            raise self._error(
                index,
                f"expected {_KINDS[channels]}, as the first one is, found {_KINDS[shape[0]]}; set data.colours to 1 "
                "or 3",
            )
        if shape[1:] != (height, width):
            hint = "" if self.like else "; set data.size"
            raise self._error(
                index,
                f"expected an image of {height}×{width} pixels, as the first one has, found {shape[1]}×{shape[2]}"
                f"{hint}",
            )

    def _error(self, index: int, message: str) -> UserError:
        return UserError(message, file=self.name(index))

    def _each(self, act: Callable[[int], Made]) -> Iterator[Made]:
        def several(start: int) -> list[Made]:
            return [act(index) for index in range(start, min(start + _CHUNK, self.count))]

        with ThreadPoolExecutor(max_workers=min(16, os.cpu_count() or 1)) as pool:
            yield from chain.from_iterable(pool.map(several, range(0, self.count, _CHUNK)))

    def _header(self, index: int) -> Shape:
        with self._opened(index) as image:
            return self._shape(image, index)

    def _shape(self, image: Any, index: int) -> Shape:
        if image.mode.startswith(("I", "F")):
            raise self._error(
                index, f"expected an image of 8 bits for each channel, found one of the mode {image.mode}"
            )
        height, width = self.size or (image.height, image.width)
        return self.colours or (1 if image.mode in _GREY else 3), height, width

    def _decoded(self, index: int) -> NDArray[np.uint8]:
        from PIL import Image

        with self._opened(index) as image:
            channels, height, width = self._shape(image, index)
            try:
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
        return image


def split_files(folder: Path, split: str) -> list[Path]:
    """The files of one split, sorted: ``split-*.parquet`` or ``split.parquet``, here or in the folder ``data``."""
    places = [folder, folder / "data"]
    return sorted(file for place in places for form in ("-*", "") for file in place.glob(f"{split}{form}.parquet"))


def read_split(folder: Path, split: str, image_column: str, label_column: str, shape: Shape) -> Samples:
    """The images and labels of one split of Parquet files in the form of the Hugging Face hub, in their order.

    All images have the height and width of ``shape`` (see :func:`image_shape`), and are converted to its channels.

    Raises:
        UserError: files or columns are missing, images are not embedded, unreadable or of another size, or labels are
            not whole numbers from 0.
    """
    files = split_files(folder, split)
    labels, cells = read_labels(files, label_column), _encoded(files, image_column)
    return Samples(np.asarray(_pictures(cells, folder, split, 1 if shape[0] == 1 else 3, shape)), labels)


def image_shape(folder: Path, split: str, image_column: str) -> Shape:
    """Channels, height and width of a split's images, read from the first images.

    A set is grey if its first 64 images are all grey; a few grey images among colour images (as in Tiny-ImageNet) do
    not make a set grey.

    Raises:
        UserError: there is no readable image.
    """
    first = _encoded(split_files(folder, split), image_column, 64)
    if not first:
        raise UserError(f"expected images in '{folder}', found none")
    pictures = _pictures(first, folder, split)
    shapes = [pictures._header(index) for index in range(len(first))]
    return (1 if all(channels == 1 for channels, *_ in shapes) else 3), *shapes[0][1:]


def _pictures(
    cells: Sequence[bytes], folder: Path, split: str, colours: Colours | None = None, like: Shape | None = None
) -> Pictures:
    return Pictures(
        len(cells), cells.__getitem__, lambda index: f"{folder}: image {index} of {split}", None, colours, like
    )


def _encoded(files: list[Path], column: str, most: int | None = None) -> list[bytes]:
    import pyarrow

    found: list[bytes] = []
    for file in files:
        table = _opened(file, column)
        kind = table.schema_arrow.field(column).type
        struct = pyarrow.types.is_struct(kind) and kind.get_field_index("bytes") >= 0
        inner = kind.field("bytes").type if struct else kind
        if not (pyarrow.types.is_binary(inner) or pyarrow.types.is_large_binary(inner)):
            raise UserError(
                f"expected encoded images (struct<bytes, path>) in column '{column}' of '{file}', found {kind}"
            )
        for batch in table.iter_batches(batch_size=most or 2048, columns=[column]):
            cells = batch.column(0)
            cells = cells.field("bytes") if struct else cells
            if cells.null_count:
                raise UserError(f"expected images inside '{file}', found one that is only a path")
            found += cells.to_pylist()
            if most is not None and len(found) >= most:
                return found[:most]
    return found


def read_labels(files: list[Path], column: str) -> Integers:
    """The labels of a split, without its images.

    Raises:
        UserError: a file has no such column, or the column contains other values than whole numbers from 0.
    """
    parts = []
    for file in files:
        values = _opened(file, column).read(columns=[column]).column(0)
        if values.null_count or not str(values.type).startswith(("int", "uint")):
            raise UserError(
                f"expected whole numbers in column '{column}' of '{file}', found {values.type} with "
                f"{values.null_count} empty"
            )
        parts.append(values.to_numpy().astype(np.int64))
    labels = np.concatenate(parts)
    if len(labels) and labels.min() < 0:
        raise UserError(f"expected labels from 0 in column '{column}' of '{files[0].parent}', found {labels.min()}")
    return labels


def _opened(file: Path, column: str) -> Any:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.ParquetFile(file)
    except (OSError, pyarrow.ArrowException) as error:
        raise UserError(f"'{file}' is not a readable Parquet file ({str(error).partition('.')[0]})") from None
    names = table.schema_arrow.names
    if column not in names:
        raise UserError(f"unknown column '{column}' in '{file}'; {nearest(column, names)}")
    return table
