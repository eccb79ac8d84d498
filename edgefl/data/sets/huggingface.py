"""Data sets in the form of the Hugging Face library datasets, from folders on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from edgefl.data.array_files import array_of
from edgefl.data.own_data import OwnArrays, Raw, SplitData
from edgefl.data.pictures import COLOURS, SIZE, Colours, Pictures
from edgefl.data.spec import DATA_SETS
from edgefl.errors import UserError, in_words, nearest
from edgefl.input_file import InputFolder, find_input


@DATA_SETS.register("huggingface")
class HuggingFace(SplitData, OwnArrays):
    """A folder that ``save_to_disk`` of the library ``datasets`` wrote (extra ``datasets``).

    Inputs are a column of images, of numbers, or of lists of numbers with one length. Nothing is downloaded or
    executed.
    """

    name: Literal["huggingface"] = Field(
        default="huggingface", description="a folder written by save_to_disk of the library datasets"
    )
    path: InputFolder = Field(description="the folder")
    train: str = Field(default="train", description="split of the training data")
    test_data: str | None = Field(
        default=None, description="split of the test data; null: test, if there is one, else a share of train"
    )
    inputs: str = Field(description="column of the inputs")
    target: str = Field(default="label", description="column of the labels, whole numbers from 0")
    client: str | None = Field(default=None, description="column of the samples' clients, for natural; null: none")
    size: tuple[int, int] | None = Field(default=None, description=SIZE)
    colours: Colours | None = Field(default=None, description=COLOURS)

    def raw(self) -> tuple[Raw, Raw | None]:
        try:
            folder = find_input(self.path, what="folder")
        except UserError as error:
            raise error.located(field="path") from None
        data = _loaded(folder)
        if not isinstance(data, dict):
            if (self.train, self.test_data) != ("train", None):
                raise UserError("this data set has no splits, and data.train or data.test names one", file=str(folder))
            return self._of(data, folder), None
        for split in (self.train, self.test_data):
            if split is not None and split not in data:
                raise UserError(f"no split '{split}' in this data set; {nearest(split, data)}", file=str(folder))
        test = self.test_data or ("test" if "test" in data and self.train != "test" else None)
        return self._of(data[self.train], folder), None if test is None else self._of(data[test], folder)

    def _of(self, split: Any, folder: Path) -> Raw:
        place = str(folder)
        table = {name: self._column(split, name, folder) for name in (self.inputs, self.target, self.client) if name}
        labels = array_of(table[self.target], self.target, place)
        client = None if self.client is None else array_of(table[self.client], self.client, place)
        names = self.inputs, self.target, self.client or ""
        import pyarrow.compute

        column = table[self.inputs]
        is_encoded = pyarrow.types.is_struct(column.type) and {"bytes", "path"} == {each.name for each in column.type}
        if not is_encoded:
            return Raw(array_of(column, self.inputs, place), labels, client, names, place, self.channels)
        encoded = pyarrow.compute.struct_field(column, "bytes")

        def source(index: int) -> bytes:
            content = encoded[index].as_py()
            if content is None:
                raise UserError("expected an image inside the data set, found only a path", file=name(index))
            return bytes(content)

        def name(index: int) -> str:
            return f"{place}: row {index} of '{self.inputs}'"

        if not len(column):
            raise UserError(f"expected images in '{self.inputs}', found none", file=place)
        pictures = Pictures(len(column), source, name, self.size, self.colours)
        return Raw(pictures, labels, client, names, place, "first")

    def _column(self, split: Any, name: str, folder: Path) -> Any:
        if name not in split.column_names:
            raise UserError(
                f"no column '{name}' in this data set; {nearest(name, split.column_names)}", file=str(folder)
            )
        column = split.select_columns([name]).with_format("arrow")[:][name]
        import pyarrow

        return column if isinstance(column, pyarrow.ChunkedArray) else pyarrow.chunked_array([column])


def _loaded(folder: Path) -> Any:
    """The data set, or a mapping of its splits."""
    try:
        import datasets
    except ModuleNotFoundError as error:
        if error.name != "datasets":
            raise
        raise UserError("huggingface needs the package datasets; run: pip install 'edgefl[datasets]'") from None
    try:
        return datasets.load_from_disk(str(folder.absolute()))
    except Exception as error:  # noqa: BLE001  (whatever the library raises for a wrong folder)
        raise UserError(
            f"expected a folder written by save_to_disk, found one that cannot be read ({in_words(error)})",
            file=str(folder),
        ) from None
