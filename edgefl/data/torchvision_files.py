"""Data sets of torchvision, with its folders, checksums and downloads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from edgefl.data.location import data_root, how_to_set_the_root
from edgefl.data.spec import Samples
from edgefl.errors import UserError

Result = TypeVar("Result")

_FAILURES = (RuntimeError, OSError, ValueError, AssertionError, EOFError)
"""Exceptions of torchvision for damaged files, inaccessible folders and unreachable servers."""


def read_with_torchvision(name: str, folder: str, root: str | None, **options: Any) -> tuple[Samples, Samples]:
    """The training and test images of a torchvision data set, downloaded to the root if they are missing.

    Args:
        name: the class in ``torchvision.datasets``.
        folder: the folder inside the root that torchvision reads.
        root: see :func:`edgefl.data.location.data_root`.
        options: further arguments of the class.

    Raises:
        UserError: the files are missing and could not be downloaded, or cannot be read.
    """
    import torchvision.datasets

    make: Callable[..., Any] = getattr(torchvision.datasets, name)
    place = data_root(root)

    def read(download: bool) -> tuple[Samples, Samples]:
        train, test = (_pixels(make(place, train=train, download=download, **options)) for train in (True, False))
        return train, test

    try:
        return read(download=False)
    except _FAILURES as error:
        if "not found" not in str(error):
            raise UserError(
                f"the files in '{place / folder}' cannot be read ({_first_line(error)}); remove them to have them "
                "downloaded again"
            ) from None
    return downloaded(place, folder, lambda: read(download=True))


def downloaded(place: Path, folder: str, download: Callable[[], Result]) -> Result:
    """Return the result of ``download``; if it fails, raise an error that states what to do.

    Args:
        place: the data root.
        folder: the data set's folder in it.
        download: fetches the files; may raise.

    Raises:
        UserError: the files are not available. Empty folders created by the attempt are removed.
    """
    new = [path for path in (place / folder, *(place / folder).parents) if not path.exists()]
    try:
        return download()
    except _FAILURES as error:
        for path in new:
            _remove_empty_folders(path)
        raise UserError(
            f"found no data in '{place / folder}', and downloading it failed ({_first_line(error)}); "
            f"{how_to_set_the_root()}"
        ) from None


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(":") or type(error).__name__


def _remove_empty_folders(path: Path) -> None:
    """Remove the folders that a failed download created, except folders that contain files."""
    if not path.is_dir():
        return
    for child in path.iterdir():
        _remove_empty_folders(child)
    if not any(path.iterdir()):
        path.rmdir()


def _pixels(dataset: Any) -> Samples:
    """A torchvision data set's arrays, grey ``[n, h, w]`` or colour ``[n, h, w, 3]``, in one layout."""
    images = _array(dataset.data)
    images = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
    return Samples(np.ascontiguousarray(images, dtype=np.uint8), _array(dataset.targets).astype(np.int64))


def _array(values: Any) -> NDArray[Any]:
    """Convert to an array: MNIST and similar sets hold tensors, CIFAR an array and a list."""
    return np.asarray(values.numpy() if hasattr(values, "numpy") else values)
