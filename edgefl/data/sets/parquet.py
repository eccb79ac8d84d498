"""Any folder of Parquet files in the form of image sets on the Hugging Face hub."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from edgefl.data.array_files import parquet_files
from edgefl.data.location import data_root, how_to_set_the_root
from edgefl.data.own_data import Encoded, Raw
from edgefl.data.pictures import Pictures
from edgefl.data.spec import DATA_SETS
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
        None, pattern=r"^[\w.-]+$", description="prefix of test files; null: test, validation or a share of train"
    )


@DATA_SETS.register("parquet")
class Parquet(Encoded):
    """Images in files ``train-*.parquet`` and ``test-*.parquet`` or ``validation-*.parquet``."""

    name: Literal["parquet"] = Field(default="parquet", description="a folder of Parquet files with encoded images")
    folder: str | None = Field(None, description="folder of the files inside root (or $EDGEFL_DATA); null: root itself")
    columns: Columns = Field(default=Columns(), description="names of the columns")
    splits: Splits = Field(default=Splits(), description="names of the splits")

    def raw(self) -> tuple[Raw, Raw | None]:
        folder = data_root(self.root) / (self.folder or "")
        tests = [self.splits.test] if self.splits.test is not None else ["test", "validation"]
        test = next((split for split in tests if split_files(folder, split)), self.splits.test)
        return self._of(folder, self.splits.train), None if test is None else self._of(folder, test)

    def _of(self, folder: Path, split: str) -> Raw:
        files = split_files(folder, split)
        if not files:
            raise UserError(f"found no files {split}-*.parquet in '{folder}'; {how_to_set_the_root()}")
        file = parquet_files(*files, place=f"{folder}: {split}", size=self.size, colours=self.colours)
        raw = Raw.of(file, self.columns.image, self.columns.label, None)
        if not isinstance(raw.inputs, Pictures):
            raw.refuse(f"expected encoded images in '{raw.names[0]}', found {raw.inputs.dtype}")
        return raw


def split_files(folder: Path, split: str) -> list[Path]:
    """The files of one split, sorted: ``split-*.parquet`` or ``split.parquet``, here or in the folder ``data``."""
    places = [folder, folder / "data"]
    return sorted(file for place in places for form in ("-*", "") for file in place.glob(f"{split}{form}.parquet"))
