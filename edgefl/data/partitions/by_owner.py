"""Partitions by owner: a client is a speaker, a writer or a device, or a file lists the samples of each."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
from pydantic import Field

from edgefl.csv_table import read_csv
from edgefl.data.partitions.base import Partition
from edgefl.data.sharding import Integers, Rng, Shards
from edgefl.errors import UserError, locating, nearest
from edgefl.files import read_json
from edgefl.input_file import InputFile, find_input
from edgefl.validation import shown


class Natural(Partition):
    """Client k has the samples of owner k, in data sets that have owners; those of further owners are not used."""

    by_owner = True

    kind: Literal["natural"] = Field(default="natural", description="one client for each owner in the data")

    def check(self, class_sizes: Integers, clients: int) -> None:
        """Do nothing: the owners are unknown before the data are read."""

    def sizes(self, class_sizes: Integers, clients: int, rng: Rng) -> Integers:
        """Always raise an error: class sizes do not contain owners."""
        _refuse_without_owners(self.kind)

    def split(self, labels: Integers, classes: int, clients: int, rng: Rng, owner: Integers | None = None) -> Shards:
        return split_by_owner(owner, clients, self.kind)


def split_by_owner(owner: Integers | None, clients: int, kind: str = "natural", *, every: bool = True) -> Shards:
    """The samples of owners 0 … ``clients``-1, owner by owner; samples of owner -1 belong to no client.

    With ``every``, there must be as many owners as clients; else clients without an owner have no samples.

    >>> split_by_owner(np.array([1, 0, 2, 1]), clients=2).shard(1).tolist()
    [0, 3]
    """
    if owner is None:
        _refuse_without_owners(kind)
    owners = int(owner.max(initial=-1)) + 1
    if every and owners < clients:
        raise UserError(f"partition {kind} expects at most {owners} clients, one for each owner, found {clients}")
    mine = np.flatnonzero((owner >= 0) & (owner < clients))
    return Shards.of(owner[mine], mine, clients)


def _refuse_without_owners(kind: str) -> NoReturn:
    raise UserError(f"partition {kind} needs data that name the owner of each sample, as shakespeare does")


Client = int | str


class ByFile(Partition):
    """Each client has the samples that a file lists for it; samples that it does not list are not used.

    A CSV file has a header and a row for each sample: the column ``client``, and the column ``index`` with the sample's
    position in the training data, from 0; without ``index``, row i is about sample i. A JSON file is a mapping from
    clients to lists of indices, a mapping from indices to clients, or the list of all samples' clients. Client k of the
    scenario is the k-th client of the file, in ascending order.
    """

    by_owner = True

    kind: Literal["file"] = Field(default="file", description="a file that lists the samples of each client")
    file: InputFile = Field(description="the file, .csv or .json")

    def check(self, class_sizes: Integers, clients: int) -> None:
        """Do nothing: the file is read when a run begins."""

    def sizes(self, class_sizes: Integers, clients: int, rng: Rng) -> Integers:
        return split_by_owner(self.owners(int(class_sizes.sum())), clients, self.kind).sizes

    def split(self, labels: Integers, classes: int, clients: int, rng: Rng, owner: Integers | None = None) -> Shards:
        """The samples of each client in the file; a part of the training data has its owners from :meth:`owners`."""
        return split_by_owner(self.owners(len(labels)) if owner is None else owner, clients, self.kind)

    def owners(self, samples: int) -> Integers:
        """The client of each of the training samples, from 0; -1 for samples that the file does not list."""
        path = find_input(self.file)
        readers = {".csv": _csv_rows, ".json": _json_rows}
        if path.suffix not in readers:
            raise UserError(f"expected a file of the format .csv or .json, found '{path.name}'", file=str(path))
        with locating(file=str(path)):
            clients = _clients_of(readers[path.suffix](path), samples)
        numbers = {client: number for number, client in enumerate(sorted(set(clients.values())))}
        owners = np.full(samples, -1, dtype=np.int64)
        owners[list(clients)] = [numbers[client] for client in clients.values()]
        return owners


def _clients_of(rows: Iterable[tuple[Any, Any]], samples: int) -> dict[int, Client]:
    found: dict[int, Client] = {}
    for index, client in rows:
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < samples:
            raise UserError(f"expected indices of training samples, 0 to {samples - 1}, found {shown(index)}")
        if isinstance(client, bool) or not isinstance(client, int | str):
            raise UserError(f"expected clients as integers or texts, found {shown(client)}")
        if index in found:
            raise UserError(f"expected each index once, found {index} twice")
        found[index] = client
    if not found:
        raise UserError("expected the clients of samples, found none")
    if len({isinstance(client, str) for client in found.values()}) > 1:
        raise UserError("expected clients that are all integers or all texts, found both")
    return found


def _csv_rows(path: Path) -> Iterator[tuple[Any, Any]]:
    """Index and client of each row; clients are integers if all of them are."""
    table = read_csv(path)
    if "client" not in table.header:
        hint = nearest("client", table.header) if table.named else "the first line has none"
        raise UserError(f"expected a header with the column client and possibly index; {hint}")
    rows = [dict(zip(table.header, cells, strict=True)) for _, cells in table.of_equal_rows(path).rows]
    whole = all(_is_whole(row["client"]) for row in rows)
    for number, row in enumerate(rows):
        index = row.get("index", str(number))
        yield int(index) if _is_whole(index) else index, int(row["client"]) if whole else row["client"]


def _json_rows(path: Path) -> Iterator[tuple[Any, Any]]:
    content = read_json(path)
    if isinstance(content, list):
        yield from enumerate(content)
    elif not isinstance(content, dict):
        raise UserError(f"expected a mapping or a list, found {shown(content)}")
    elif any(isinstance(value, list) for value in content.values()):
        whole = all(_is_whole(client) for client in content)
        for client, indices in content.items():
            if not isinstance(indices, list):
                raise UserError(f"expected a list of indices for client '{client}', found {shown(indices)}")
            yield from ((index, int(client) if whole else client) for index in indices)
    else:
        yield from ((int(index) if _is_whole(index) else index, client) for index, client in content.items())


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit()
