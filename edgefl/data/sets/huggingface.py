"""Data sets in the form of the Hugging Face library datasets, from folders on this machine."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from edgefl.data.array_files import ArrayFile, of_column
from edgefl.data.own_data import Encoded, OwnArrays, Raw, SplitData
from edgefl.data.spec import DATA_SETS
from edgefl.errors import UserError, in_words, locating, nearest, optional
from edgefl.input_file import InputFolder, find_input


@DATA_SETS.register("huggingface")
class HuggingFace(SplitData, Encoded, OwnArrays):
    """A folder that ``save_to_disk`` of ``datasets`` wrote, with a column of images or numbers, also in lists."""

    name: Literal["huggingface"] = Field("huggingface", description="a folder that save_to_disk of datasets wrote")
    path: InputFolder = Field(description="the folder")
    train: str = Field(default="train", description="split of the training data")
    test_data: str | None = Field(None, description="split of the test data; null: test, else a share of train")
    inputs: str = Field(description="column of the inputs")
    target: str = Field(default="label", description="column of the labels, whole numbers from 0")
    client: str | None = Field(default=None, description="column of the samples' clients, for natural; null: none")

    def raw(self) -> tuple[Raw, Raw | None]:
        with locating(field="path"):
            folder = find_input(self.path, what="folder")
        data = _loaded(folder)
        if not isinstance(data, dict):
            if (self.train, self.test_data) != ("train", None):
                raise UserError("this data set has no splits, and data.train or data.test names one", file=str(folder))
            return self._of(data, str(folder)), None
        test = self.test_data or ("test" if "test" in data and self.train != "test" else None)
        for split in (self.train, test):
            if split is not None and split not in data:
                raise UserError(f"no split '{split}' in this data set; {nearest(split, data)}", file=str(folder))
        place = f"{folder}, split "
        tests = None if test is None else self._of(data[test], place + test)
        return self._of(data[self.train], place + self.train), tests

    def _of(self, split: Any, place: str) -> Raw:
        def column(name: str) -> Any:
            import pyarrow

            values = split.select_columns([name]).with_format("arrow")[:][name]
            values = values if isinstance(values, pyarrow.ChunkedArray) else pyarrow.chunked_array([values])
            return of_column(values, name, place, self.size, self.colours)

        file = ArrayFile(place, "column", split.column_names, column, "data set")
        classes = getattr(split.features.get(self.target), "num_classes", None)
        return Raw.of(file, self.inputs, self.target, self.client, classes)


def _loaded(folder: Path) -> Any:
    """The data set, or a mapping of its splits."""
    datasets = optional("datasets", "datasets")
    try:
        return datasets.load_from_disk(str(folder.absolute()))
    except Exception as error:  # noqa: BLE001  (whatever the library raises for a wrong folder)
        message = f"expected a folder written by save_to_disk, found one that cannot be read ({in_words(error)})"
        raise UserError(message, file=str(folder)) from None
