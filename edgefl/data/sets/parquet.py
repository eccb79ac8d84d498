"""Any folder of Parquet files in the form of image sets on the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from edgefl.data.location import data_root, how_to_set_the_root
from edgefl.data.pictures import image_shape, read_labels, read_split, split_files
from edgefl.data.samples import class_number
from edgefl.data.spec import DATA_SETS, DataSpec, Description, Samples
from edgefl.errors import UserError
from edgefl.options import Component


class Columns(Component):
    """The columns of images and labels."""

    image: str = Field(default="image", description="column of encoded images, struct<bytes, path> or plain bytes")
    label: str = Field(default="label", description="column of classes, whole numbers from 0")


class Splits(Component):
    """The file name prefixes of the splits."""

    train: str = Field(default="train", pattern=r"^[\w.-]+$", description="prefix of files with training images")
    test: str | None = Field(
        default=None,
        pattern=r"^[\w.-]+$",
        description="prefix of test files; null: test if there are such files, else validation",
    )


@DATA_SETS.register("parquet")
class Parquet(DataSpec):
    """Images of one size in files ``train-*.parquet`` and ``test-*.parquet`` or ``validation-*.parquet``."""

    name: Literal["parquet"] = Field(default="parquet", description="a folder of Parquet files with encoded images")
    folder: str | None = Field(
        default=None, description="folder of the files inside root (or $EDGEFL_DATA); null: root itself"
    )
    columns: Columns = Field(default=Columns(), description="names of the columns")
    splits: Splits = Field(default=Splits(), description="names of the splits")

    def declared(self) -> None:
        return

    def found(self) -> Description:
        """The properties read from the labels and the first images; mean and deviation are not set."""
        folder, test = self._place()
        parts = [read_labels(split_files(folder, split), self.columns.label) for split in (self.splits.train, test)]
        classes = class_number(*parts)
        train_sizes, test_sizes = (tuple(np.bincount(labels, minlength=classes).tolist()) for labels in parts)
        shape = image_shape(folder, self.splits.train, self.columns.image)
        return Description(classes=classes, shape=shape, train=train_sizes, test=test_sizes)

    def read(self) -> tuple[Samples, Samples]:
        folder, test_split = self._place()
        image, label = self.columns.image, self.columns.label
        shape = image_shape(folder, self.splits.train, image)
        train, test = (read_split(folder, split, image, label, shape) for split in (self.splits.train, test_split))
        return train, test

    def _place(self) -> tuple[Path, str]:
        folder = data_root(self.root) / (self.folder or "")
        if not split_files(folder, self.splits.train):
            raise UserError(f"found no files {self.splits.train}-*.parquet in '{folder}'; {how_to_set_the_root()}")
        candidates = [self.splits.test] if self.splits.test is not None else ["test", "validation"]
        for split in candidates:
            if split_files(folder, split):
                return folder, split
        forms = " or ".join(f"{split}-*.parquet" for split in candidates)
        raise UserError(f"found no files {forms} in '{folder}'; name the split to test on in data.splits.test")
