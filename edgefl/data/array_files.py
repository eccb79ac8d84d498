"""Arrays by name from files of users: .npz, .safetensors and .parquet; nothing in such a file is executed."""

from __future__ import annotations

import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from edgefl.data.arrow_columns import array_of
from edgefl.errors import UserError, nearest


class ArrayFile(ABC):
    """A file with arrays by name.

    Args:
        path: the file.

    Raises:
        UserError: it cannot be read as a file of this format.
    """

    word = "array"
    """What a named array is called in messages."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def names(self) -> list[str]:
        """The names of the arrays."""

    @abstractmethod
    def header(self, name: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """The type and the shape of an array; it is read only if the file does not contain them.

        Raises:
            UserError: there is no such array, or its values are no numbers or texts.
        """

    @abstractmethod
    def read(self, name: str) -> NDArray[Any]:
        """An array.

        Raises:
            UserError: as :meth:`header`, or the file is damaged.
        """

    def require(self, name: str) -> None:
        """Check that there is an array of this name.

        Raises:
            UserError: there is none; the message suggests the nearest name.
        """
        if name not in self.names():
            hint = nearest(name, self.names()) if self.names() else "it has none"
            raise UserError(f"no {self.word} '{name}' in this file; {hint}", file=str(self.path))

    def damaged(self, error: object, what: str) -> UserError:
        """The error for a file that is not of this format."""
        return UserError(
            f"not a readable {what} file ({str(error).strip().partition(chr(10))[0]})", file=str(self.path)
        )


class NpzFile(ArrayFile):
    """Arrays of NumPy, as ``np.savez`` and ``np.savez_compressed`` write them, without pickled objects."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            with zipfile.ZipFile(path) as archive:
                self._entries = {each.filename.removesuffix(".npy"): each for each in archive.infolist()}
        except (OSError, zipfile.BadZipFile, ValueError) as error:
            raise self.damaged(error, ".npz") from None

    def names(self) -> list[str]:
        """The names of the archive's members."""
        return sorted(self._entries)

    def header(self, name: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """From the member's header."""
        return self._opened(name, whole=False)[:2]

    def read(self, name: str) -> NDArray[Any]:
        """The member, without unpickling."""
        return self._opened(name, whole=True)[2]

    def _opened(self, name: str, *, whole: bool) -> tuple[np.dtype[Any], tuple[int, ...], NDArray[Any]]:
        self.require(name)
        entry = self._entries[name]
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(entry) as member:
                version = npy.read_magic(member)
                header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
                shape, fortran, type = header(member)
                if type.hasobject:
                    raise UserError(
                        f"expected numbers in '{name}', found Python objects (a pickle), which edgefl does not open",
                        file=str(self.path),
                    )
                found, expected = entry.file_size - member.tell(), prod(shape) * type.itemsize
                content = member.read() if whole and found == expected else b""
        except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
            raise self.damaged(error, ".npz") from None
        if found != expected:
            raise self.damaged(f"'{name}' has {found} bytes of values, and its header says {expected}", ".npz")
        values = np.frombuffer(content, dtype=type)
        return type, shape, values.reshape(shape, order="F" if fortran else "C") if whole else values


class SafetensorsFile(ArrayFile):
    """Tensors of a safetensors file."""

    word = "tensor"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="np") as file:
                self._headers = {
                    name: (part.get_dtype(), tuple(part.get_shape()))
                    for name in file.keys()  # noqa: SIM118  (it is no mapping)
                    for part in [file.get_slice(name)]
                }
        except (OSError, SafetensorError, ValueError) as error:
            raise self.damaged(error, ".safetensors") from None

    def names(self) -> list[str]:
        """The names of the tensors."""
        return sorted(self._headers)

    def header(self, name: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """From the file's header."""
        self.require(name)
        type, shape = self._headers[name]
        if type not in _TYPES:
            raise UserError(
                f"expected '{name}' of one of the types {', '.join(_TYPES)}, found {type}", file=str(self.path)
            )
        return np.dtype(_TYPES[type]), shape

    def read(self, name: str) -> NDArray[Any]:
        """The tensor."""
        from safetensors import safe_open

        self.header(name)
        with safe_open(self.path, framework="np") as file:
            values: NDArray[Any] = file.get_tensor(name)
        return values


_TYPES = {"BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32",
          "I32": "int32", "U64": "uint64", "I64": "int64", "F16": "float16",
          "F32": "float32", "F64": "float64"}  # fmt: skip
"""Types of safetensors in NumPy."""


class ParquetFile(ArrayFile):
    """Columns of a Parquet file."""

    word = "column"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        import pyarrow
        import pyarrow.parquet

        try:
            self._file = pyarrow.parquet.ParquetFile(path)
        except (OSError, pyarrow.ArrowException) as error:
            raise self.damaged(error, "Parquet") from None

    def names(self) -> list[str]:
        """The names of the columns."""
        return sorted(self._file.schema_arrow.names)

    def header(self, name: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """Of the column, which is read: the file does not contain the lengths of lists."""
        values = self.read(name)
        return values.dtype, values.shape

    def read(self, name: str) -> NDArray[Any]:
        """The column."""
        import pyarrow

        self.require(name)
        try:
            column = self._file.read(columns=[name]).column(name)
        except (OSError, pyarrow.ArrowException, KeyError) as error:
            raise self.damaged(error, "Parquet") from None
        return array_of(column, name, str(self.path))


FORMATS: dict[str, type[ArrayFile]] = {".npz": NpzFile, ".safetensors": SafetensorsFile, ".parquet": ParquetFile}
"""The formats by the ending of the file's name."""


def open_arrays(path: Path) -> ArrayFile:
    """The file of arrays at ``path``.

    Raises:
        UserError: its name has another ending, or it is not a readable file of that format.
    """
    if path.suffix not in FORMATS:
        raise UserError(f"expected a file of the format {', '.join(FORMATS)}, found '{path.name}'", file=str(path))
    return FORMATS[path.suffix](path)


def read_columns(file: ArrayFile, names: Sequence[str]) -> NDArray[Any]:
    """Several arrays of numbers ``[samples]`` side by side, ``[samples, names]``.

    Raises:
        UserError: one is missing, or has another shape.
    """
    columns = [file.read(name) for name in names]
    for name, column in zip(names, columns, strict=True):
        if column.ndim != 1 or column.dtype.kind not in "fiub" or len(column) != len(columns[0]):
            raise UserError(
                f"expected as many numbers in '{name}' as in '{names[0]}', one for each sample, found {column.dtype} "
                f"{list(column.shape)}",
                file=str(file.path),
            )
    return np.stack(columns, axis=1)
