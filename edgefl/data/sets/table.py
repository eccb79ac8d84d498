"""Tables of text files: CSV, TSV and what spreadsheets write, with classes and clients as texts or numbers."""

from __future__ import annotations

import os
import re
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from edgefl.csv_table import CsvTable, Names, Text, csv_table
from edgefl.data.own_data import Raw, SplitData
from edgefl.data.samples import Samples
from edgefl.data.spec import DATA_SETS
from edgefl.errors import Note, UserError, locating
from edgefl.files import read_text
from edgefl.input_file import InputFile, find_input
from edgefl.validation import as_validator, first_repeated, shown
from edgefl.wording import listed

MISSING = frozenset(("", "nan", "null", "n/a", "#n/a", "<na>"))
"""Cells without a value, in lower case."""
NO_NUMBER = MISSING | {"na", "none", "-", "?"}
"""The same among numbers; in other columns these texts may be values."""
MOST_TEXTS = 100
"""Different texts of a column that may become inputs."""
EXAMPLE = "data.target: 5"

_NUMBER = re.compile(r"[-+]?(\d+[.,]?\d*|[.,]\d+)([eE][-+]?\d+)?")
_WHOLE = re.compile(r"([-+]?\d{1,18})(\.0+|,0)?")


class _Parsed(NamedTuple):
    """The arrays of the files, the names of their classes and clients, and what each column is."""

    train: Raw
    test: Raw | None
    classes: list[str]
    clients: list[str]
    columns: list[tuple[str, str, str]]


@DATA_SETS.register("table")
class Table(SplitData):
    """Rows of a CSV or TSV file: columns of numbers are the inputs, one column names the class.

    Columns are separated by commas, semicolons, tabs, | or spaces; numbers have a decimal point or comma; a table
    without header numbers its columns from 1. Classes and clients are numbered in ascending order of their numbers or
    texts. Inputs and, for regression, targets have mean 0 and deviation 1 over the training rows. Missing values are
    refused.
    """

    name: Literal["table"] = Field(default="table", description="a CSV or TSV file of numbers and texts")
    train: InputFile = Field(description="file of the training rows")
    test_data: InputFile | None = Field(default=None, description="file of the test rows; null: a share of train")
    target: Names = Field(
        min_length=1, description="column of the classes; for other tasks one or more columns of numbers"
    )
    client: Text | None = Field(
        default=None,
        description="column of the clients; then partition is natural and clients is their number if not given",
    )
    inputs: Names = Field((), description="columns of the inputs; none: all that have no other use")
    ignore: Names = Field((), description="columns that are not used")
    one_hot: Names = Field((), description="columns of categories, such as texts: an input, 0 or 1, for each category")
    standardise: bool = Field(
        True, description="subtract the mean of the training rows and divide by their deviation; false: as in the file"
    )

    @model_validator(mode="before")
    @classmethod
    def _clients_of_the_file(cls, data: Any) -> Any:
        return _with_clients(data) if isinstance(data, dict) and data.get("client") is not None else data

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    def raw(self) -> tuple[Raw, Raw | None]:
        return self._parsed()[:2]

    def class_names(self) -> list[str]:
        return self._parsed().classes

    def client_names(self) -> list[str]:
        return self._parsed().clients

    def column_facts(self) -> list[tuple[str, str, str]]:
        return self._parsed().columns

    def _parsed(self) -> _Parsed:
        stamps = []
        for field, name in (("train", self.train), ("test_data", self.test_data)):
            with locating(field=field):
                stamps.append(None if name is None else os.stat(find_input(name)).st_mtime_ns)
        return _parsed(self, *stamps)

    def _samples(self, train: Raw, test: Raw | None) -> tuple[Samples, Samples]:
        parts = super()._samples(train, test)
        for name in ("inputs", "labels") if self.task.kind == "regression" else ("inputs",):
            values = [np.asarray(getattr(part, name), np.float64) for part in parts]
            if self.standardise:
                mean, deviation = values[0].mean(axis=0), values[0].std(axis=0)
                deviation[deviation <= 1e-12 * np.abs(values[0]).max(axis=0)] = 1.0  # a constant column
                values = [(each - mean) / deviation for each in values]
            with np.errstate(over="ignore"):
                changed: list[dict[str, Any]] = [{name: each.astype(np.float32)} for each in values]
            parts = parts[0]._replace(**changed[0]), parts[1]._replace(**changed[1])
        return parts


@as_validator
def _with_clients(options: dict[str, Any]) -> dict[str, Any]:
    """The options with the natural partition and the number of clients in the file, if they are not given."""
    options = {"partition": {"kind": "natural"}, **options}
    kind = options["partition"].get("kind") if isinstance(options["partition"], dict) else None
    train, target, client = options.get("train"), options.get("target"), str(options["client"])
    if "clients" not in options and kind == "natural" and isinstance(train, str):
        named = (client, *map(str, target if isinstance(target, list) else [target]))
        options["clients"] = len(_numbered([_File.open(train, all(map(str.isdigit, named))).texts(client)])[1])
    return options


class _File(NamedTuple):
    table: CsvTable
    path: str

    @classmethod
    def open(cls, name: str, numbered: bool) -> _File:
        path = str(find_input(name))
        with locating(file=path):
            table = csv_table(read_text(path, what="a table"), numbered=numbered)
            if not table.rows:
                raise UserError("expected rows below a header, found none")
        return cls(table, path)

    def refuse(self, message: str) -> NoReturn:
        raise UserError(message, file=self.path)

    def texts(self, name: str) -> list[str]:
        with locating(file=self.path):
            place = self.table.place(name, EXAMPLE)
        return [row[place] if place < len(row) else "" for _, row in self.table.rows]

    def numbers(self, name: str) -> NDArray[np.float64]:
        """The numbers of a column; NaN for other cells."""
        texts = self.texts(name)
        try:
            read = self.table.numbers(self.table.place(name, EXAMPLE))
        except UserError as error:
            self.refuse(f"in the column '{name}', {error.message}")
        return np.array([float(read(text)) for text in texts])

    def refuse_missing(self, names: Sequence[str], numbers: Mapping[str, NDArray[np.float64]]) -> None:
        """Refuse cells without a value, with their count, and texts among the numbers, with their columns."""
        missing, words = defaultdict[str, list[int]](list), dict[str, str]()
        for name in names:
            known, empty = numbers.get(name), NO_NUMBER if name in numbers else MISSING
            for row, text in enumerate(self.texts(name)):
                if known is not None and not np.isnan(known[row]):
                    continue
                if text.casefold() in empty:
                    missing[name].append(self.table.rows[row][0])
                elif known is not None:
                    words.setdefault(name, f"'{name}' ({shown(text)} in line {self.table.rows[row][0]})")
        if words:
            how = (
                f"leave inputs out by data.ignore, or write data.one_hot: [{', '.join(words)}], an input for each text"
            )
            self.refuse(f"expected numbers, found texts in {listed(list(words.values()))}; {how}")
        if missing:
            each = listed([f"'{name}' {len(lines):,} (line {lines[0]})" for name, lines in missing.items()])
            self.refuse(
                f"expected a value in every row, found {sum(map(len, missing.values())):,} missing: {each}; fill them, "
                "remove the rows, or name the columns in data.ignore"
            )


@lru_cache(maxsize=1)
def _parsed(spec: Table, *_stamps: int | None) -> _Parsed:
    client = [] if spec.client is None else [spec.client]
    numbered = all(map(str.isdigit, (*spec.target, *spec.inputs, *spec.ignore, *spec.one_hot, *client)))
    train = _File.open(spec.train, numbered)
    files = [train] if spec.test_data is None else [train, _File.open(spec.test_data, numbered)]
    inputs = _inputs(spec, train, [*spec.target, *client, *spec.ignore])
    figures = [name for name in inputs if name not in spec.one_hot]
    figures += () if spec.task.classes else spec.target
    numbers = [{name: file.numbers(name) for name in figures} for file in files]
    for file, known in zip(files, numbers, strict=True):
        file.refuse_missing([*inputs, *spec.target, *(each for each in client if each in file.table.header)], known)
    facts = dict.fromkeys(train.table.header, ("not used", ""))
    facts |= {name: ("target" if name in spec.target else "input", _range(numbers[0][name])) for name in figures}
    blocks = [{name: values[:, None] for name, values in known.items()} for known in numbers]
    for name in spec.one_hot:
        codes, texts = _numbered([file.texts(name) for file in files])
        if len(texts) > MOST_TEXTS:
            train.refuse(f"expected at most {MOST_TEXTS} categories in '{name}', found {len(texts):,}; see data.ignore")
        facts[name] = f"one-hot, {len(texts)} inputs", ", ".join(texts)
        for block, code in zip(blocks, codes, strict=True):
            block[name] = np.eye(len(texts))[code]
    targets, classes = _classes(spec, files) if spec.task.classes else ([], [])
    for name in spec.target[: len(targets)]:
        facts[name] = "target", _counted(classes, "classes")
    having = [file for file in files if spec.client in file.table.header]  # test rows need no clients
    owners = _numbered([file.texts(name) for name in client for file in having])[0] if client else []
    _, clients = _numbered([train.texts(name) for name in client])
    facts |= {name: ("client", _counted(clients, "clients")) for name in client}
    names = ", ".join(inputs), ", ".join(spec.target), ", ".join(client)
    raws = [
        Raw(
            np.concatenate([blocks[place][name] for name in inputs], axis=1),
            targets[place] if targets else np.concatenate([blocks[place][name] for name in spec.target], axis=1),
            owners[place] if place < len(owners) else None,
            names,
            file.path,
        )
        for place, file in enumerate(files)
    ]
    columns = [(name or "without a name", *facts[name]) for name in train.table.header]
    return _Parsed(raws[0], raws[1] if len(raws) > 1 else None, classes, clients, columns)


def _inputs(spec: Table, train: _File, taken: Sequence[str]) -> list[str]:
    """The columns of the inputs; UserError if a column is missing or has two uses."""
    others = [name for name in train.table.header if name and name not in (*taken, *spec.one_hot)]
    inputs = list(spec.inputs or others) + [name for name in spec.one_hot if name not in spec.inputs]
    for name in (*taken, *inputs):
        train.texts(name)
    if (twice := first_repeated((*taken, *inputs))) is not None:
        train.refuse(f"expected one use of each column, found two of '{twice[0]}' in target, client, ignore and inputs")
    if not inputs:
        train.refuse("expected a column of inputs besides those of target, client and ignore, found none")
    if spec.task.classes and len(spec.target) > 1:
        raise UserError(f"expected one column for this task, found {len(spec.target)}", field="target")
    return inputs


def _classes(spec: Table, files: Sequence[_File]) -> tuple[list[NDArray[np.int64]], list[str]]:
    """The class of each row of each file, and the names of all classes."""
    name, train = spec.target[0], files[0]
    every = [file.texts(name) for file in files]
    if all(map(_NUMBER.fullmatch, every[0])) and not all(map(_WHOLE.fullmatch, every[0])):
        found = next(text for text in every[0] if not _WHOLE.fullmatch(text))
        train.refuse(f"expected texts or whole numbers in '{name}', the classes, found {found}; see task: regression")
    codes, names = _numbered(every)
    known = np.unique(codes[0])
    if spec.classes is None and (unknown := np.setdiff1d(np.concatenate(codes), known)).size:
        text = names[unknown[0]]
        message = f"expected classes that are in the training data in '{name}', found {shown(text)}"
        files[1].refuse(f"{message}; set data.classes to the number of classes if the training data lack some")
    if len(known) > 20 and len(known) > len(codes[0]) / 2:
        note = f"{train.path}: '{name}' has {len(known):,} classes in {len(codes[0]):,} rows"
        warnings.warn(f"{note}; to estimate numbers, write task: regression", Note, stacklevel=1)
    return codes, names


def _numbered(columns: Sequence[Sequence[str]]) -> tuple[list[NDArray[np.int64]], list[str]]:
    """The number of each text of each column, and all texts in ascending order: as whole numbers if all are.

    >>> codes, names = _numbered([["b", "a"], ["b"]])
    >>> [each.tolist() for each in codes], names, _numbered([["10", "9.0"]])[1]
    ([[1, 0], [1]], ['a', 'b'], ['9', '10'])
    """
    values = np.array([text for column in columns for text in column])
    whole = [_WHOLE.fullmatch(text) for text in values]
    if all(whole):
        values = np.array([int(each[1]) for each in whole if each])
    names, codes = np.unique(values, return_inverse=True)
    ends = np.cumsum([len(column) for column in columns])[:-1]
    return np.split(codes.astype(np.int64), ends), [str(each) for each in names]


def _counted(names: Sequence[str], noun: str) -> str:
    return f"{len(names):,} {noun}: {', '.join(names[:20])}{', …' * (len(names) > 20)}"


def _range(values: NDArray[np.float64]) -> str:
    return f"{values.min():.4g} to {values.max():.4g}, mean {values.mean():.4g}, deviation {values.std():.4g}"


def proposed(file: str, target: str | None, client: str | None) -> tuple[dict[str, Any], int, bool]:
    """Options for a file, the number of clients, and true if the target suits regression.

    The target is the last column if not given. Columns with at most 20 different texts are one-hot, those with more,
    such as times, are ignored. Rows are divided among at most 20 clients without a column of clients.
    """
    opened = _File.open(file, all(map(str.isdigit, (target or "1", client or "1"))) and (target or client) is not None)
    target = target or opened.table.header[-1]
    taken = [target, *([client] if client else [])]
    others = {name: opened.texts(name) for name in opened.table.header if name and name not in taken}
    cells = {name: zip(texts, np.isnan(opened.numbers(name)), strict=True) for name, texts in others.items()}
    words = [name for name, each in cells.items() if any(nan and text.lower() not in NO_NUMBER for text, nan in each)]
    chosen: dict[str, Any] = {"target": target} | ({"client": client} if client else {})
    for option, many in (("one_hot", False), ("ignore", True)):
        if found := [name for name in words if (len(set(others[name])) > 20) == many]:
            chosen[option] = found
    values = opened.texts(target)
    numbers = all(map(_NUMBER.fullmatch, values))
    regression = numbers and (len(set(values)) > MOST_TEXTS or not all(map(_WHOLE.fullmatch, values)))
    clients = len(set(opened.texts(client))) if client else max(1, min(20, len(opened.table.rows) // 20))
    return chosen | ({} if client else {"clients": clients}), clients, regression
