"""Arrays from files: .npz, .safetensors, or columns of .parquet."""

from typing import Literal

from pydantic import Field

from edgefl.data.array_files import open_arrays
from edgefl.data.own_data import OwnArrays, Raw, SplitData
from edgefl.data.spec import DATA_SETS
from edgefl.errors import UserError, locating
from edgefl.input_file import InputFile, find_input

Inputs = str | tuple[str, ...]


@DATA_SETS.register("arrays")
class Arrays(SplitData, OwnArrays):
    """Inputs of any shape and integer labels from .npz, .safetensors or .parquet files.

    Images are uint8 ``[samples, channels, height, width]``, or grey ``[samples, height, width]``. Models get integers
    ``[samples, length]`` as tokens and floating-point numbers as float32, unchanged; ``kind`` says otherwise.
    """

    name: Literal["arrays"] = Field(default="arrays", description="arrays from .npz, .safetensors or .parquet files")
    train: InputFile = Field(description="file of the training data")
    test_data: InputFile | None = Field(default=None, description="file of the test data; null: a share of train")
    inputs: Inputs = Field("x", min_length=1, description="array of inputs, or a list of columns that make one input")
    target: str = Field(default="y", description="array of labels, whole numbers from 0")
    client: str | None = Field(None, description="array of clients, integers or texts; null: client, if there is one")
    test_inputs: Inputs | None = Field(None, min_length=1, description="in `test_data` or the file; null: as inputs")
    test_target: str | None = Field(default=None, description="array of the test labels; null: as target")
    test_client: str | None = Field(default=None, description="array of the test samples' clients; null: as client")

    def tests(self) -> bool:
        return self.test_data is not None or self.test_inputs is not None

    def raw(self) -> tuple[Raw, Raw | None]:
        train = self._of("train", self.train, self.inputs, self.target, self.client)
        if not self.tests():
            return train, None
        field, file = ("train", self.train) if self.test_data is None else ("test_data", self.test_data)
        inputs, target = self.test_inputs or self.inputs, self.test_target or self.target
        return train, self._of(field, file, inputs, target, self.test_client or self.client)

    def _of(self, field: str, name: str, inputs: Inputs, target: str, client: str | None) -> Raw:
        with locating(field=field):
            file = open_arrays(find_input(name))
        if isinstance(inputs, str) and inputs not in file.names:
            both = " if it has both splits, name their arrays in data.inputs, data.target, data.test_inputs and "
            keys = f"{both}data.test_target" if "test" in str(file.names) else " name data.inputs and data.target"
            message = f"no {file.word} '{inputs}' in this file;{keys} (it has {', '.join(file.names)})"
            raise UserError(message, file=file.place)
        return Raw.of(file, inputs, target, client or ("client" if "client" in file.names else None))
