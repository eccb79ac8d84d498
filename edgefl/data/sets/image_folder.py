"""Folders of image files, a subfolder for each class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from edgefl.data.own_data import Raw, SplitData
from edgefl.data.pictures import COLOURS, SIZE, Colours, Pictures
from edgefl.data.spec import DATA_SETS
from edgefl.errors import UserError, nearest
from edgefl.input_file import InputFolder, find_input


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
        train = _folder("train", self.train)
        classes = _classes(train)
        if self.test_data is None:
            return self._of(train, classes), None
        return self._of(train, classes), self._of(_folder("test_data", self.test_data), classes)

    def _of(self, folder: Path, classes: Sequence[str]) -> Raw:
        """The images of a split; ``classes`` are those of the training data."""
        paths: list[Path] = []
        labels: list[int] = []
        for name in _classes(folder):
            if name not in classes:
                hint = nearest(name, classes)
                message = f"expected a class that is in the training data, found '{name}'; {hint}"
                raise UserError(message, file=str(folder / name))
            images = _entries(folder / name)
            if not images:
                raise UserError("expected images of this class, found none", file=str(folder / name))
            for path in images:
                if not path.is_file():
                    raise UserError("expected an image file, found a folder or a device", file=str(path))
            paths += images
            labels += [classes.index(name)] * len(images)
        pictures = Pictures(len(paths), paths.__getitem__, lambda index: str(paths[index]), self.size, self.colours)
        names = "images", "classes", ""
        return Raw(pictures, np.array(labels, dtype=np.int64), None, names, str(folder), "first")


def _folder(field: str, name: str) -> Path:
    try:
        return find_input(name, what="folder")
    except UserError as error:
        raise error.located(field=field) from None


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", file=str(folder)) from None


def _classes(folder: Path) -> list[str]:
    entries = _entries(folder)
    for path in entries:
        if not path.is_dir():
            raise UserError("expected only subfolders here, one for each class, found a file", file=str(path))
    if not entries:
        raise UserError("expected a subfolder of images for each class, found none", file=str(folder))
    return [path.name for path in entries]
