"""Columns of Arrow tables as arrays: numbers, texts, and lists of numbers of one length."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import UserError


def array_of(column: Any, name: str, place: str) -> NDArray[Any]:
    """A column as an array ``[rows, …]``; lists of lists of numbers add dimensions.

    Args:
        column: the ``pyarrow.ChunkedArray``.
        name: the name of the column.
        place: its file or folder, for messages.

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
        if not _is_list(values.type):
            break
        lengths = values.value_lengths().unique().to_pylist()
        if len(lengths) > 1:
            raise UserError(
                f"expected lists of one length in '{name}', found lengths from {min(lengths)} to {max(lengths)}",
                file=place,
            )
        shape.append(lengths[0] if lengths else 0)
        values = values.flatten()
    kind = values.type
    if types.is_string(kind) or types.is_large_string(kind):
        return np.array(values.to_pylist(), dtype=str).reshape(shape)
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        raise UserError(f"expected numbers, texts or lists of numbers in '{name}', found {kind}", file=place)
    numbers: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return numbers.reshape(shape)


def _is_list(type: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(type) or types.is_large_list(type) or types.is_fixed_size_list(type))
