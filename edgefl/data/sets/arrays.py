"""Arrays from files: .npz, .safetensors, or columns of .parquet."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from edgefl.data.array_files import open_arrays
from edgefl.data.own_data import OwnArrays, Raw, SplitData
from edgefl.data.spec import DATA_SETS
from edgefl.errors import UserError
from edgefl.input_file import InputFile, find_input


@DATA_SETS.register("arrays")
class Arrays(SplitData, OwnArrays):
    """Inputs of any shape and integer labels from .npz, .safetensors or .parquet files.

    Images are uint8 ``[samples, channels, height, width]``, or grey ``[samples, height, width]``. Models get all other
    integers as tokens and floating-point numbers as float32, unchanged.
    """

    name: Literal["arrays"] = Field(default="arrays", description="arrays from .npz, .safetensors or .parquet files")
    train: InputFile = Field(description="file of the training data")
    test_data: InputFile | None = Field(default=None, description="file of the test data; null: a share of train")
    inputs: str | tuple[str, ...] = Field(
        default="x", min_length=1, description="array of inputs, or a list of columns that make one input"
    )
    target: str = Field(default="y", description="array of labels, whole numbers from 0")
    client: str | None = Field(
        default=None, description="array of clients, integers or texts, for natural; null: client, if there is one"
    )

    def raw(self) -> tuple[Raw, Raw | None]:
        return self._of("train", self.train), None if self.test_data is None else self._of("test_data", self.test_data)

    def _of(self, field: str, name: str) -> Raw:
        try:
            path = find_input(name)
        except UserError as error:
            raise error.located(field=field) from None
        file = open_arrays(path)
        client = "client" if self.client is None and "client" in file.names else self.client
        targets = file.read(self.target)
        clients = None if client is None else file.read(client)
        one = isinstance(self.inputs, str)
        inputs = file.read(self.inputs) if isinstance(self.inputs, str) else file.read_columns(self.inputs)
        names = str(self.inputs) if one else ", ".join(self.inputs), self.target, client or "client"
        return Raw(inputs, targets, clients, names, str(path), self.channels)
