"""Folders of image files, a subfolder for each class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from edgefl.data.arrays import Raw
from edgefl.data.own_data import SplitData
from edgefl.data.pictures import COLOURS, SIZE, Colours, Pictures
from edgefl.data.spec import DATA_SETS
from edgefl.errors import UserError, nearest
from edgefl.input_file import InputFolder, find_input


class _Files(NamedTuple):
    """The image files of a split, class by class.

    Attributes:
        folder: the folder of the split.
        paths: the files in it.
        labels: the class of each file.
    """

    folder: Path
    paths: tuple[Path, ...]
    labels: tuple[int, ...]


@DATA_SETS.register("image_folder")
class ImageFolder(SplitData):
    """Image files in a subfolder for each class; classes are numbered in the order of the subfolders' names.

    Hidden files are ignored, all others must be images: PNG, JPEG, WebP, BMP, GIF or TIFF.
    """

    name: Literal["image_folder"] = Field(
        default="image_folder", description="folders of image files, a subfolder for each class"
    )
    train: InputFolder = Field(description="folder of the training images")
    test_data: InputFolder | None = Field(default=None, description="folder of the test images; null: a share of train")
    size: tuple[int, int] | None = Field(default=None, description=SIZE)
    colours: Colours | None = Field(default=None, description=COLOURS)

    def raw(self) -> tuple[Raw, Raw | None]:
        """The images of both folders, which are decoded when they are needed."""
        train = _files(_folder("train", self.train))
        if self.test_data is None:
            return self._of(train), None
        return self._of(train), self._of(_files(_folder("test_data", self.test_data), _classes(train.folder)))

    def _of(self, files: _Files) -> Raw:
        paths = files.paths
        pictures = Pictures(
            len(paths), lambda index: paths[index], lambda index: str(paths[index]), self.size, self.colours
        )
        labels = np.array(files.labels, dtype=np.int64)
        return pictures.raw(labels, None, ("images", "classes", ""), str(files.folder))


def _folder(field: str, name: str) -> Path:
    try:
        return find_input(name, what="folder")
    except UserError as error:
        raise error.located(field=field) from None


def _entries(folder: Path, root: Path) -> list[Path]:
    """The entries of a folder by name, without hidden ones.

    Raises:
        UserError: it cannot be read, or an entry is a link to a place outside ``root``.
    """
    try:
        entries = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", file=str(folder)) from None
    for path in entries:
        if path.is_symlink() and not path.resolve().is_relative_to(root.resolve()):
            raise UserError("expected a file or a folder, found a link that leaves the data's folder", file=str(path))
    return entries


def _classes(folder: Path) -> list[str]:
    """The names of the subfolders, one for each class."""
    entries = _entries(folder, folder)
    for path in entries:
        if not path.is_dir():
            raise UserError("expected only subfolders here, one for each class, found a file", file=str(path))
    if not entries:
        raise UserError("expected a subfolder of images for each class, found none", file=str(folder))
    return [path.name for path in entries]


def _files(folder: Path, known: Sequence[str] | None = None) -> _Files:
    """The image files of a split; ``known`` are the classes of the training data."""
    names = _classes(folder)
    numbers = {name: number for number, name in enumerate(known or names)}
    paths, labels = [], []
    for name in names:
        if name not in numbers:
            hint = nearest(name, numbers)
            message = f"expected a class that is in the training data, found '{name}'; {hint}"
            raise UserError(message, file=str(folder / name))
        images = _entries(folder / name, folder)
        if not images:
            raise UserError("expected images of this class, found none", file=str(folder / name))
        for path in images:
            if not path.is_file():
                raise UserError("expected an image file, found a folder or a device", file=str(path))
        paths += images
        labels += [numbers[name]] * len(images)
    return _Files(folder, tuple(paths), tuple(labels))
