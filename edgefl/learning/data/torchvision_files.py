"""Data sets that torchvision knows: its folders, its checksums, its downloads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from edgefl.errors import UserError
from edgefl.learning.data.location import data_root, how_to_set_the_root
from edgefl.learning.data.spec import Pixels


def read_with_torchvision(name: str, folder: str, root: str | None, **options: Any) -> tuple[Pixels, Pixels]:
    """The training and test images of a torchvision data set, downloaded to the root where they are missing.

    Args:
        name: the class in ``torchvision.datasets``.
        folder: the folder inside the root that torchvision reads.
        root: see :func:`edgefl.learning.data.location.data_root`.
        options: further arguments of the class.

    Raises:
        UserError: the files are missing and could not be downloaded, or cannot be read.
    """
    import torchvision.datasets

    make: Callable[..., Any] = getattr(torchvision.datasets, name)
    place = data_root(root)
    with_download(
        place,
        folder,
        present=lambda: _opened(make, place, download=False, **options),
        download=lambda: _opened(make, place, download=True, **options),
    )
    try:
        train, test = (_pixels(make(place, train=train, download=False, **options)) for train in (True, False))
    except (RuntimeError, OSError, ValueError, AssertionError, EOFError) as error:
        raise UserError(
            f"the files in '{place / folder}' cannot be read ({error}); remove them to have them downloaded again"
        ) from None
    return train, test


def with_download(place: Path, folder: str, present: Callable[[], bool], download: Callable[[], object]) -> None:
    """Downloads what is not present, and says what to do where that fails.

    Args:
        place: the data root.
        folder: the data set's folder in it.
        present: whether the files are there.
        download: fetches them; may raise.

    Raises:
        UserError: the files are neither there nor to be had.
    """
    if present():
        return
    new = [path for path in (place / folder, *(place / folder).parents) if not path.exists()]
    try:
        download()
    except (RuntimeError, OSError, ValueError, EOFError) as error:
        for path in new:
            _remove_empty_folders(path)
        reason = str(error).strip().partition("\n")[0]
        raise UserError(
            f"found no data in '{place / folder}', and downloading it failed ({reason}); {how_to_set_the_root()}"
        ) from None


def _opened(make: Callable[..., Any], place: Path, **options: Any) -> bool:
    """Whether both parts are complete; with ``download=True``, after fetching them."""
    try:
        for train in (True, False):
            make(place, train=train, **options)
    except RuntimeError:
        if options["download"]:
            raise
        return False
    return True


def _remove_empty_folders(path: Path) -> None:
    """Takes back folders that a failed download made, and none that holds a file."""
    if not path.is_dir():
        return
    for child in path.iterdir():
        _remove_empty_folders(child)
    if not any(path.iterdir()):
        path.rmdir()


def _pixels(dataset: Any) -> Pixels:
    """A torchvision data set's arrays, grey ``[n, h, w]`` or coloured ``[n, h, w, 3]``, in one layout."""
    images = np.asarray(dataset.data)
    images = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
    return Pixels(np.ascontiguousarray(images, dtype=np.uint8), np.array(dataset.targets, dtype=np.int64))
