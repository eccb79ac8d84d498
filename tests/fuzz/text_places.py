"""Every text in the files of a run directory, found by reading them, and how to put another one in its place."""

from __future__ import annotations

import copy
import json
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from edgefl.scenario.writing import dump_yaml
from edgefl.yaml_file import read_yaml

KEY = "the key"
"""The end of a path to the key of a mapping instead of its value."""


class Place(NamedTuple):
    """A text of a run directory.

    Attributes:
        file: relative to the run directory.
        path: in data the keys and indices that lead to it; in a table the column, a value of its column ``kind`` if it
            has one, and in JSON inside of the column the rest of the path; in a journal the table and the column.
    """

    file: str
    path: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.file}: {'.'.join(map(str, self.path))}"


def texts_in(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all texts in plain data, keys included; of a list's similar elements only the first."""
    if isinstance(data, str):
        yield path
    elif isinstance(data, dict):
        for key, value in data.items():
            yield (*path, key, KEY)
            yield from texts_in(value, (*path, key))
    elif isinstance(data, list | tuple):
        alike = all(isinstance(each, dict | list) for each in data)
        for number, value in enumerate(data[:1] if alike else data):
            yield from texts_in(value, (*path, number))


def with_text(data: Any, path: tuple[Any, ...], text: str) -> Any:
    """A copy of plain data with this text at a path."""
    top = {"": copy.deepcopy(data)}
    holder: Any = top
    key: Any = ""
    *rest, last = path if path else (None,)
    if last == KEY:
        *above, old = rest
        for each in above:
            holder, key = holder[key], each
        found = holder[key]
        holder[key] = {text if each == old else each: value for each, value in found.items()}
        return top[""]
    for each in path:
        holder, key = holder[key], each
    holder[key] = text
    return top[""]


def places(run: Path) -> list[Place]:
    """Every text of a run directory."""
    found: list[Place] = []
    for file in sorted(path for path in run.rglob("*") if path.is_file()):
        name = file.relative_to(run).as_posix()
        match file.suffix:
            case ".json":
                found += (Place(name, path) for path in texts_in(json.loads(file.read_text())))
            case ".yaml":
                found += (Place(name, path) for path in texts_in(read_yaml(file)))
            case ".safetensors":
                found += (Place(name, path) for path in texts_in(_head(file.read_bytes())))
            case ".parquet":
                found += (Place(name, path) for path in _in_table(file))
            case ".sqlite":
                found += (Place(name, path) for path in _in_journal(file))
    return found


def put(run: Path, place: Place, text: str) -> None:
    """Put a text in a place.

    Raises:
        ValueError: the file's format cannot hold it.
    """
    file = run / place.file
    match file.suffix:
        case ".json":
            file.write_text(json.dumps(with_text(json.loads(file.read_text()), place.path, text)))
        case ".yaml":
            file.write_text(dump_yaml(with_text(read_yaml(file), place.path, text)), encoding="utf-8")
        case ".safetensors":
            content = file.read_bytes()
            head = json.dumps(with_text(_head(content), place.path, text)).encode()
            (size,) = struct.unpack_from("<Q", content)
            file.write_bytes(struct.pack("<Q", len(head)) + head + content[8 + size :])
        case ".parquet":
            pq.write_table(_changed(file, place.path, text), file)
        case ".sqlite":
            table, column = place.path
            with closing(sqlite3.connect(file)) as opened, opened:
                opened.execute(f"UPDATE {table} SET {column} = ?", (text,))


def _head(content: bytes) -> Any:
    (size,) = struct.unpack_from("<Q", content)
    return json.loads(content[8 : 8 + size])


def _in_journal(file: Path) -> Iterator[tuple[Any, ...]]:
    with closing(sqlite3.connect(file)) as opened:
        for (table,) in opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for _, column, kind, *_ in opened.execute(f"PRAGMA table_info({table})").fetchall():
                if kind == "TEXT" and opened.execute(f"SELECT count(*) FROM {table}").fetchone() != (0,):
                    yield (table, column)


_OWN = b"edgefl"


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind.value_type if pa.types.is_dictionary(kind) else kind)


def _in_table(file: Path) -> Iterator[tuple[Any, ...]]:
    table = pq.read_table(file)
    metadata = table.schema.metadata or {}
    if _OWN in metadata:
        for path in texts_in(json.loads(metadata[_OWN])):
            yield ("metadata", *path)
    kinds = table["kind"].to_pylist() if "kind" in table.column_names else [""] * len(table)
    for name in table.column_names:
        yield ("name of", name)
        for key in table.schema.field(name).metadata or {}:
            yield ("about", name, key.decode())
        if not _is_text(table.schema.field(name).type):
            continue
        first = {kind: value for kind, value in zip(kinds, table[name].to_pylist(), strict=True) if value}
        for kind, value in first.items():
            yield (name, kind)
            if name == "detail":
                for path in texts_in(json.loads(value)):
                    yield (name, kind, *path)


def _changed(file: Path, path: tuple[Any, ...], text: str) -> pa.Table:
    table = pq.read_table(file)
    if path[0] == "metadata":
        data = with_text(json.loads(table.schema.metadata[_OWN]), path[1:], text)
        return table.replace_schema_metadata({_OWN: json.dumps(data).encode()})
    if path[0] == "name of":
        return table.rename_columns([text if name == path[1] else name for name in table.column_names])
    if path[0] == "about":
        number = table.column_names.index(path[1])
        field = table.schema.field(number)
        fields = field.with_metadata({**field.metadata, path[2]: text.encode()})
        return table.set_column(number, fields, table.column(number))
    name, kind, *inside = path
    kinds = table["kind"].to_pylist() if "kind" in table.column_names else [""] * len(table)
    values = [
        value if each != kind or not value else _inside(value, tuple(inside), text) if inside else text
        for each, value in zip(kinds, table[name].to_pylist(), strict=True)
    ]
    field = table.schema.field(name)
    array = pa.array(values, field.type.value_type if pa.types.is_dictionary(field.type) else field.type)
    return table.set_column(table.column_names.index(name), field, array.cast(field.type))


def _inside(value: str, path: tuple[Any, ...], text: str) -> str:
    try:
        return json.dumps(with_text(json.loads(value), path, text))
    except (KeyError, IndexError):  # a row of this kind without this fact
        return value
