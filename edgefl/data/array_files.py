"""Arrays by name from files of users: .npz, .safetensors and .parquet; nothing in such a file is executed."""

import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgefl.data.pictures import Colours, Pictures
from edgefl.errors import UserError, nearest


class ArrayFile(NamedTuple):
    """Arrays by name; ``word`` is one of them in messages: array, tensor or column, ``what`` the whole."""

    place: str  # the file or folder, for messages
    word: str
    names: list[str]
    open: Callable[[str], NDArray[Any] | Pictures]
    what: str = "file"

    def read(self, name: str | tuple[str, ...]) -> NDArray[Any] | Pictures:
        """An array, or several arrays of numbers ``[samples]`` side by side, ``[samples, names]``."""
        if isinstance(name, tuple):
            return self._side_by_side(name)
        if name not in self.names:
            hint = nearest(name, self.names) if self.names else "it has none"
            raise UserError(f"no {self.word} '{name}' in this {self.what}; {hint}", file=self.place)
        with _readable(self.place):
            return self.open(name)

    def _side_by_side(self, names: tuple[str, ...]) -> NDArray[Any]:
        columns = [self.read(name) for name in names]
        for name, column in zip(names, columns, strict=True):
            if len(column.shape) != 1 or column.dtype.kind not in "fiub" or column.shape != columns[0].shape:
                raise UserError(
                    f"expected as many numbers in '{name}' as in '{names[0]}', one for each sample, found "
                    f"{column.dtype} {list(column.shape)}",
                    file=self.place,
                )
        return np.stack(columns, axis=1)


def open_arrays(path: Path) -> ArrayFile:
    """The file of arrays at ``path``."""
    formats: dict[str, Callable[[Path], ArrayFile]] = {".npz": _npz, ".safetensors": _safetensors}
    formats[".parquet"] = partial(parquet_files, place=str(path))
    if path.suffix not in formats:
        raise UserError(f"expected a file of the format {', '.join(formats)}, found '{path.name}'", file=str(path))
    with _readable(str(path)):
        return formats[path.suffix](path)


@contextmanager
def _readable(place: str) -> Iterator[None]:
    import pyarrow
    from safetensors import SafetensorError

    failures = (OSError, EOFError, ValueError, KeyError, NotImplementedError)
    try:
        yield
    except (*failures, zipfile.BadZipFile, zlib.error, SafetensorError, pyarrow.ArrowException) as error:
        if "allow_pickle" in str(error):
            message = "expected numbers, found Python objects (a pickle), which edgefl does not open"
        else:
            form = next((each for each in (".npz", ".safetensors") if place.endswith(each)), "Parquet")
            message = f"not a readable {form} file ({str(error).strip().partition(chr(10))[0]})"
        raise UserError(message, file=place) from None


def _npz(path: Path) -> ArrayFile:
    """Arrays of NumPy, as ``np.savez`` and ``np.savez_compressed`` write them, without pickled objects."""
    with zipfile.ZipFile(path) as archive:
        names = sorted(name.removesuffix(".npy") for name in archive.namelist())

    def read(name: str) -> NDArray[Any]:
        with np.load(path, allow_pickle=False) as file:
            values: NDArray[Any] = file[name]
        return values

    return ArrayFile(str(path), "array", names, read)


def _safetensors(path: Path) -> ArrayFile:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        names = sorted(file.keys())

    def read(name: str) -> NDArray[Any]:
        with safe_open(path, framework="pt") as file:
            return of_tensor(file.get_tensor(name))

    return ArrayFile(str(path), "tensor", names, read)


def of_tensor(tensor: Any) -> NDArray[Any]:
    """A tensor of PyTorch as an array; of a type that NumPy does not have, such as bfloat16, as float32."""
    tensor = tensor.to_dense()
    try:
        values: NDArray[Any] = tensor.numpy(force=True)
    except TypeError:
        values = tensor.float().numpy(force=True)
    return values


def parquet_files(
    *paths: Path, place: str, size: tuple[int, int] | None = None, colours: Colours | None = None
) -> ArrayFile:
    """The columns that all of these files have, file after file; size and colours are for images."""
    import pyarrow.parquet

    files = {}
    for path in paths:
        with _readable(str(path)):
            files[str(path)] = pyarrow.parquet.ParquetFile(path)

    def read(name: str) -> NDArray[Any] | Pictures:
        parts = []
        for path, file in files.items():
            with _readable(path):
                parts.append(file.read(columns=[name]))
        table = pyarrow.concat_tables(parts, promote_options="permissive")
        return of_column(table.column(name), name, place, size, colours)

    names = set.intersection(*(set(file.schema_arrow.names) for file in files.values()))
    return ArrayFile(place, "column", sorted(names), read)


def of_column(
    column: Any, name: str, place: str, size: tuple[int, int] | None = None, colours: Colours | None = None
) -> NDArray[Any] | Pictures:
    """A column of Arrow as an array ``[rows, …]``: numbers, texts, lists of numbers, or encoded images."""
    import pyarrow
    import pyarrow.compute
    from pyarrow import types

    kind = column.type
    if types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        column = pyarrow.compute.struct_field(column, "bytes")
    if types.is_binary(column.type) or types.is_large_binary(column.type):
        if not len(column):
            raise UserError(f"expected images in '{name}', found none", file=place)
        cells = column
        return Pictures(
            lambda index: cells[index].as_py(),
            lambda index: f"{place}: row {index} of '{name}'",
            np.arange(len(cells)),
            size,
            colours,
        )
    values = column.combine_chunks() if column.num_chunks else pyarrow.array([], kind)
    shape = [len(values)]
    while True:
        if isinstance(values.type, pyarrow.BaseExtensionType):
            values = values.storage
        if types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if values.null_count:
            raise UserError(f"expected a value in every row of '{name}', found {values.null_count} empty", file=place)
        kind = values.type
        if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
            break
        lengths = values.value_lengths().unique().to_pylist()
        if len(lengths) > 1:
            message = f"expected lists of one length in '{name}', found lengths from {min(lengths)} to {max(lengths)}"
            raise UserError(message, file=place)
        shape.append(lengths[0] if lengths else 0)
        values = values.flatten()
    if types.is_string(kind) or types.is_large_string(kind):
        return np.array(values.to_pylist(), dtype=str).reshape(shape)
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        raise UserError(f"expected numbers, texts, images or lists of numbers in '{name}', found {kind}", file=place)
    numbers: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return numbers.reshape(shape)
