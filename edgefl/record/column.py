"""A column of a table of a run directory."""

from __future__ import annotations

import pyarrow as pa


def column(name: str, kind: pa.DataType, unit: str, meaning: str) -> pa.Field:
    """Return a column with its unit and meaning in its metadata."""
    return pa.field(name, kind, metadata={"unit": unit, "meaning": meaning})
