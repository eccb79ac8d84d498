"""Image sets in Parquet files in the form of the Hugging Face hub: encoded images and integer labels."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefl import limits
from edgefl.data.sharding import Integers
from edgefl.data.spec import Samples
from edgefl.errors import UserError, nearest

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF")
"""The supported encodings; no other decoder is applied to a file's bytes."""


def split_files(folder: Path, split: str) -> list[Path]:
    """The files of one split, sorted: ``split-*.parquet`` or ``split.parquet``, in the folder or in its ``data``."""
    places = [folder, folder / "data"]
    return sorted(file for place in places for form in ("-*", "") for file in place.glob(f"{split}{form}.parquet"))


def read_split(folder: Path, split: str, image_column: str, label_column: str, shape: tuple[int, int, int]) -> Samples:
    """The images and labels of one split, in the order of the files.

    Args:
        folder: the folder of the files.
        split: the prefix of their names.
        image_column: the column of encoded images.
        label_column: the column of classes.
        shape: the required shape of every image, see :func:`image_shape`; grey and colour images are converted to it.

    Raises:
        UserError: files or columns are missing, images are not embedded, unreadable or of another size, or labels are
            not whole numbers from 0.
    """
    files = split_files(folder, split)
    labels = read_labels(files, label_column)
    channels, height, width = shape
    images = np.empty((len(labels), *shape), dtype=np.uint8)
    position = 0

    def decode(part: list[bytes]) -> list[NDArray[np.uint8]]:
        return [_decoded(image, channels, folder) for image in part]

    with ThreadPoolExecutor(max_workers=min(16, os.cpu_count() or 1)) as pool:
        for encoded in _encoded(files, image_column):
            for pixels in chain.from_iterable(pool.map(decode, _chunks(encoded))):
                if pixels.shape[:2] != (height, width):
                    raise UserError(
                        f"expected images of {height}×{width} pixels in '{folder}', as the first one is, found "
                        f"{pixels.shape[0]}×{pixels.shape[1]} (image {position} of {split})"
                    )
                images[position] = pixels if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
                position += 1
    return Samples(images, labels)


def image_shape(folder: Path, split: str, image_column: str) -> tuple[int, int, int]:
    """Channels, height and width of a split's images, read from the first images.

    A set is grey if its first 64 images are all grey; a few grey images among colour images (as in Tiny-ImageNet) do
    not make a set grey.

    Raises:
        UserError: there is no readable image.
    """
    files = split_files(folder, split)
    first = next(_encoded(files, image_column), [])[:64]
    if not first:
        raise UserError(f"expected images in '{folder}', found none")
    opened = [_header(encoded, folder) for encoded in first]
    width, height = opened[0][1]
    return (1 if all(mode in ("1", "L") for mode, _ in opened) else 3), height, width


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


def _encoded(files: list[Path], column: str) -> Iterator[list[bytes]]:
    """The encoded images, a few thousand at a time."""
    import pyarrow

    for file in files:
        table = _opened(file, column)
        kind = table.schema_arrow.field(column).type
        inner = (
            kind.field("bytes").type if pyarrow.types.is_struct(kind) and kind.get_field_index("bytes") >= 0 else kind
        )
        if not (pyarrow.types.is_binary(inner) or pyarrow.types.is_large_binary(inner)):
            raise UserError(
                f"expected encoded images (struct<bytes, path>) in column '{column}' of '{file}', found {kind}"
            )
        for batch in table.iter_batches(batch_size=2048, columns=[column]):
            cells = batch.column(0)
            values = (cells.field("bytes") if pyarrow.types.is_struct(kind) else cells).to_pylist()
            if None in values:
                raise UserError(f"expected images inside '{file}', found one that is only a path")
            yield values


def _chunks(images: list[bytes]) -> Iterator[list[bytes]]:
    """Chunks with enough images to be worth a thread."""
    return (images[start : start + 64] for start in range(0, len(images), 64))


def _header(encoded: bytes, folder: Path) -> tuple[str, tuple[int, int]]:
    """Mode, width and height of an encoded image."""
    with _image(encoded, folder) as image:
        return image.mode, image.size


def _decoded(encoded: bytes, channels: int, folder: Path) -> NDArray[np.uint8]:
    """A decoded image: grey ``[height, width]`` or colour ``[height, width, 3]``."""
    try:
        with _image(encoded, folder) as image:
            return np.asarray(image.convert("L" if channels == 1 else "RGB"), dtype=np.uint8)
    except (OSError, ValueError, SyntaxError) as error:
        raise UserError(f"an image in '{folder}' cannot be decoded ({error})") from None


def _image(encoded: bytes, folder: Path) -> Any:
    from PIL import Image

    try:
        image = Image.open(io.BytesIO(encoded), formats=FORMATS)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise UserError(f"an image in '{folder}' cannot be decoded ({error})") from None
    if image.width * image.height > limits.IMAGE_PIXELS:
        raise UserError(f"expected images of at most {limits.IMAGE_PIXELS} pixels in '{folder}', found {image.size}")
    return image


def decoded_file(file: Path) -> NDArray[np.uint8]:
    """A colour image from an image file, ``[height, width, 3]``.

    Raises:
        UserError: it is missing or cannot be decoded.
    """
    try:
        encoded = file.read_bytes()
    except OSError as error:
        raise UserError(f"'{file}' cannot be read ({error.strerror})") from None
    return _decoded(encoded, 3, file.parent)
