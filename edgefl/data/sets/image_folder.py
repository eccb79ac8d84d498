"""Folders of image files, a subfolder for each class."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from edgefl.data.own_data import Encoded, Raw, SplitData
from edgefl.data.pictures import Pictures
from edgefl.data.spec import DATA_SETS
from edgefl.errors import UserError, locating, nearest
from edgefl.input_file import InputFolder, find_input


@DATA_SETS.register("image_folder")
class ImageFolder(SplitData, Encoded):
    """Image files in a subfolder for each class; classes are numbered in the order of the subfolders' names.

    Hidden files are ignored, others are PNG, JPEG, WebP, BMP, GIF or TIFF. Photos are turned as their EXIF says.
    """

    name: Literal["image_folder"] = Field("image_folder", description="image files, a folder for each class")
    train: InputFolder = Field(description="folder of the training images")
    test_data: InputFolder | None = Field(default=None, description="folder of the test images; null: a share of train")

    def raw(self) -> tuple[Raw, Raw | None]:
        train, test, classes = self._found()
        for name in _classes(test) if test else []:
            if test and name not in classes:
                raise UserError(
                    f"expected a class that is in the training data, found '{name}'; {nearest(name, classes)} Set "
                    "data.classes to the number of classes if the training data lack some of them",
                    file=str(test / name),
                )
        return self._of(train, classes), None if test is None else self._of(test, classes)

    def class_names(self) -> list[str]:
        return self._found()[2]

    def _found(self) -> tuple[Path, Path | None, list[str]]:
        """Both folders, and the classes by number."""
        train = _folder("train", self.train)
        test = None if self.test_data is None else _folder("test_data", self.test_data)
        classes = _classes(train)
        if self.classes is not None and test is not None:
            classes = sorted({*classes, *_classes(test)})
        return train, test, classes

    def _of(self, folder: Path, classes: Sequence[str]) -> Raw:
        from torchvision.datasets.folder import make_dataset

        numbers = {name: number for number, name in enumerate(classes) if (folder / name).is_dir()}
        try:
            images = make_dataset(
                folder,
                numbers,
                is_valid_file=lambda path: not Path(path).name.startswith("."),
                allow_empty=self.classes is not None,
            )
        except FileNotFoundError:
            empty = next(name for name in numbers if not any(_entries(folder / name)))
            raise UserError("expected images of this class, found none", file=str(folder / empty)) from None
        if not images:
            raise UserError("expected images, found none", file=str(folder))
        paths, labels = zip(*images, strict=True)
        pictures = Pictures.of_files(paths, self.size, self.colours)
        return Raw(pictures, np.array(labels), None, ("images", "classes", ""), str(folder), self.classes)


def _folder(field: str, name: str) -> Path:
    with locating(field=field):
        return find_input(name, what="folder")


def _entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _classes(folder: Path) -> list[str]:
    entries = _entries(folder)
    for path in entries:
        if not path.is_dir():
            raise UserError("expected only subfolders here, one for each class, found a file", file=str(path))
    if not entries:
        raise UserError("expected a subfolder of images for each class, found none", file=str(folder))
    return [path.name for path in entries]
