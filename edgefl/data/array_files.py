"""Arrays by name from files of users: .npz, .safetensors and .parquet; nothing in such a file is executed."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import UserError, nearest


class ArrayFile(NamedTuple):
    """A file with arrays by name, sorted; ``word`` is a named array in messages: array, tensor or column."""

    path: Path
    word: str
    names: list[str]
    open: Callable[[str], NDArray[Any]]

    def read(self, name: str) -> NDArray[Any]:
        """An array.

        Raises:
            UserError: there is none of this name, its values are no numbers or texts, or the file is damaged.
        """
        if name not in self.names:
            hint = nearest(name, self.names) if self.names else "it has none"
            raise UserError(f"no {self.word} '{name}' in this file; {hint}", file=str(self.path))
        return self.open(name)

    def read_columns(self, names: Sequence[str]) -> NDArray[Any]:
        """Several arrays of numbers ``[samples]`` side by side, ``[samples, names]``.

        Raises:
            UserError: one is missing, or has another shape.
        """
        columns = [self.read(name) for name in names]
        for name, column in zip(names, columns, strict=True):
            if column.ndim != 1 or column.dtype.kind not in "fiub" or len(column) != len(columns[0]):
                raise UserError(
                    f"expected as many numbers in '{name}' as in '{names[0]}', one for each sample, found "
                    f"{column.dtype} {list(column.shape)}",
                    file=str(self.path),
                )
        return np.stack(columns, axis=1)


def open_arrays(path: Path) -> ArrayFile:
    """The file of arrays at ``path``.

    Raises:
        UserError: its name has another ending, or it is not a readable file of that format.
    """
    if path.suffix not in _FORMATS:
        raise UserError(f"expected a file of the format {', '.join(_FORMATS)}, found '{path.name}'", file=str(path))
    return _FORMATS[path.suffix](path)


def _damaged(path: Path, error: object, what: str) -> UserError:
    return UserError(f"not a readable {what} file ({str(error).strip().partition(chr(10))[0]})", file=str(path))


def _npz(path: Path) -> ArrayFile:
    """Arrays of NumPy, as ``np.savez`` and ``np.savez_compressed`` write them, without pickled objects."""
    failures = (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error, NotImplementedError)
    try:
        with zipfile.ZipFile(path) as archive:
            names = sorted(name.removesuffix(".npy") for name in archive.namelist())
    except failures as error:
        raise _damaged(path, error, ".npz") from None

    def read(name: str) -> NDArray[Any]:
        try:
            with np.load(path, allow_pickle=False) as file:
                values: NDArray[Any] = file[name]
        except failures as error:
            if "allow_pickle" in str(error):
                raise UserError(
                    f"expected numbers in '{name}', found Python objects (a pickle), which edgefl does not open",
                    file=str(path),
                ) from None
            raise _damaged(path, error, ".npz") from None
        return values

    return ArrayFile(path, "array", names, read)


def _safetensors(path: Path) -> ArrayFile:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            names = sorted(file.keys())
    except (OSError, SafetensorError, ValueError) as error:
        raise _damaged(path, error, ".safetensors") from None

    def read(name: str) -> NDArray[Any]:
        try:
            with safe_open(path, framework="np") as file:
                values: NDArray[Any] = file.get_tensor(name)
        except (TypeError, AttributeError, SafetensorError) as error:  # a type that NumPy does not have, as bfloat16
            raise UserError(f"expected numbers of a type of NumPy in '{name}' ({error})", file=str(path)) from None
        return values

    return ArrayFile(path, "tensor", names, read)


def _parquet(path: Path) -> ArrayFile:
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise _damaged(path, error, "Parquet") from None

    def read(name: str) -> NDArray[Any]:
        try:
            column = file.read(columns=[name]).column(name)
        except (OSError, pyarrow.ArrowException, KeyError) as error:
            raise _damaged(path, error, "Parquet") from None
        return array_of(column, name, str(path))

    return ArrayFile(path, "column", sorted(file.schema_arrow.names), read)


_FORMATS: dict[str, Callable[[Path], ArrayFile]] = {".npz": _npz, ".safetensors": _safetensors, ".parquet": _parquet}


def array_of(column: Any, name: str, place: str) -> NDArray[Any]:
    """A column of Arrow as an array ``[rows, …]``; lists of lists of numbers add dimensions.

    Raises:
        UserError: it has empty cells, lists that differ in length, or values that are neither numbers nor texts.
    """
    import pyarrow
    from pyarrow import types

    column = column.combine_chunks() if column.num_chunks else pyarrow.array([], column.type)
    values = column.combine_chunks() if isinstance(column, pyarrow.ChunkedArray) else column
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
            raise UserError(
                f"expected lists of one length in '{name}', found lengths from {min(lengths)} to {max(lengths)}",
                file=place,
            )
        shape.append(lengths[0] if lengths else 0)
        values = values.flatten()
    if types.is_string(kind) or types.is_large_string(kind):
        return np.array(values.to_pylist(), dtype=str).reshape(shape)
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        raise UserError(f"expected numbers, texts or lists of numbers in '{name}', found {kind}", file=place)
    numbers: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return numbers.reshape(shape)
