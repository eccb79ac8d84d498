"""A partition that a file lists: which client holds which training samples."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
from pydantic import Field

from edgefl import limits
from edgefl.data.partitions.base import Partition
from edgefl.data.partitions.natural import split_by_owner
from edgefl.data.sharding import Integers, Shards
from edgefl.errors import UserError, nearest
from edgefl.input_file import InputFile, find_input
from edgefl.json_file import read_json
from edgefl.plain_file import read_plain_text
from edgefl.validation import shown

Client = int | str


class ByFile(Partition):
    """Each client has the samples that a file lists for it; samples that it does not list are not used.

    A CSV file has a header and a row for each sample: the column ``client``, and the column ``index`` with the sample's
    position in the training data, from 0; without ``index``, row i is about sample i. A JSON file is a mapping from
    clients to lists of indices, a mapping from indices to clients, or the list of all samples' clients. Client k of the
    scenario is the k-th client of the file, in ascending order.
    """

    kind: Literal["file"] = Field(default="file", description="a file that lists the samples of each client")
    file: InputFile = Field(description="the file, .csv or .json")

    @property
    def by_owner(self) -> bool:
        """See :class:`Partition`."""
        return True

    def check(self, class_sizes: Integers, clients: int) -> None:
        """Do nothing: the file is read when a run begins."""

    def sizes(self, class_sizes: Integers, clients: int, rng: np.random.Generator) -> Integers:
        """The number of each client's samples in the file."""
        return split_by_owner(self.owners(int(class_sizes.sum())), clients, self.kind).sizes

    def split(self, labels: Integers, classes: int, clients: int, rng: np.random.Generator) -> Shards:
        """The samples of each client in the file."""
        return split_by_owner(self.owners(len(labels)), clients, self.kind)

    def split_owned(
        self, labels: Integers, owner: Integers | None, classes: int, clients: int, rng: np.random.Generator
    ) -> Shards:
        """The same; the samples may be a part of the training data, with their owners from :meth:`owners`."""
        return split_by_owner(owner, clients, self.kind)

    def owners(self, samples: int) -> Integers:
        """The client of each of the training samples, from 0; -1 for samples that the file does not list.

        Raises:
            UserError: the file is missing or not of this form, or an index is not a sample's or occurs twice.
        """
        path = find_input(self.file)
        readers = {".csv": _csv_rows, ".json": _json_rows}
        if path.suffix not in readers:
            raise UserError(f"expected a file of the format .csv or .json, found '{path.name}'", file=str(path))
        indices, clients = [], []
        for index, client in readers[path.suffix](path):
            if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < samples:
                _refuse(path, f"expected indices of training samples, 0 to {samples - 1}, found {shown(index)}")
            if isinstance(client, bool) or not isinstance(client, int | str):
                _refuse(path, f"expected clients as integers or texts, found {shown(client)}")
            indices.append(index)
            clients.append(client)
        return _numbered(path, indices, clients, samples)


def _numbered(path: Path, indices: Sequence[int], clients: Sequence[Client], samples: int) -> Integers:
    if not indices:
        _refuse(path, "expected the clients of samples, found none")
    if len({isinstance(client, str) for client in clients}) > 1:
        _refuse(path, "expected clients that are all integers or all texts, found both")
    positions = np.array(indices, dtype=np.int64)
    for index in np.flatnonzero(np.bincount(positions, minlength=samples) > 1)[:1]:
        _refuse(path, f"expected each index once, found {index} twice")
    numbers = {client: number for number, client in enumerate(sorted(set(clients)))}
    owners = np.full(samples, -1, dtype=np.int64)
    owners[positions] = [numbers[client] for client in clients]
    return owners


def _csv_rows(path: Path) -> Iterator[tuple[Any, Any]]:
    """Index and client of each row; clients are integers if all of them are."""
    rows = csv.DictReader(read_plain_text(path, limits.PARTITION_BYTES, what="a CSV file").splitlines(), strict=True)
    try:
        names = rows.fieldnames or []
        if "client" not in names:
            hint = nearest("client", names) if names else "the file is empty"
            _refuse(path, f"expected a header with the column client and possibly index; {hint}")
        table = list(rows)
    except csv.Error as error:
        _refuse(path, f"line {rows.line_num}: not CSV: {error}")
    for number, row in enumerate(table):
        if None in row or None in row.values() or not row["client"]:
            _refuse(path, f"row {number + 1}: expected {len(names)} values, one for each column")
    whole = all(_is_whole(row["client"]) for row in table)
    for number, row in enumerate(table):
        index = row.get("index", str(number))
        yield int(index) if _is_whole(index) else index, int(row["client"]) if whole else row["client"]


def _json_rows(path: Path) -> Iterator[tuple[Any, Any]]:
    content = read_json(path, maximum=limits.PARTITION_BYTES)
    if isinstance(content, list):
        yield from enumerate(content)
    elif not isinstance(content, dict):
        _refuse(path, f"expected a mapping or a list, found {shown(content)}")
    elif any(isinstance(value, list) for value in content.values()):
        whole = all(_is_whole(client) for client in content)
        for client, indices in content.items():
            if not isinstance(indices, list):
                _refuse(path, f"expected a list of indices for client '{client}', found {shown(indices)}")
            yield from ((index, int(client) if whole else client) for index in indices)
    else:
        yield from ((int(index) if _is_whole(index) else index, client) for index, client in content.items())


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18


def _refuse(path: Path, message: str) -> NoReturn:
    raise UserError(message, file=str(path))
