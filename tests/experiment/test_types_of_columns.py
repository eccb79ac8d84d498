"""A table of a received run directory whose columns have other types is refused by every command that reads it."""

from __future__ import annotations

import re
import shutil
from dataclasses import fields

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from edgefl.cli.entry import main
from edgefl.experiment import run
from edgefl.record.events import EVENTS, Event
from edgefl.record.rounds import ROUNDS, RoundRow
from edgefl.record.tables import SENSITIVITY
from edgefl.scenario.loading import check

from ..small_runs import SMALL

TABLES = {
    "rounds.parquet": (
        ROUNDS,
        (["report", "RUN", "--html", "RUN/x.html"], ["report", "RUN", "--layout", "paper"], ["verify", "RUN"]),
    ),
    "events.parquet": (
        EVENTS,
        (["timeline", "RUN", "--method", "fedavg", "-o", "RUN/x.json"], ["verify", "RUN"]),
    ),
}
OTHER = {
    "text": lambda count: pa.array(["x"] * count),
    "lists": lambda count: pa.array([[1]] * count),
    "bytes": lambda count: pa.array([b"x"] * count),
    "truth": lambda count: pa.array([True] * count),
    "numbers": lambda count: pa.array([0.5] * count),
    "nothing": pa.nulls,
    "whole numbers with a gap": lambda count: pa.array([None] + [1] * (count - 1), pa.int64()),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run(check(SMALL), out=tmp_path_factory.mktemp("types") / "run")


def allowed(field, other):
    if pa.types.is_dictionary(field.type) or pa.types.is_string(field.type):
        return other == "text"
    gaps = () if field.name in ("time", "seconds") else ("nothing", "whole numbers with a gap")
    return pa.types.is_floating(field.type) and other in ("numbers", *gaps)


@pytest.mark.parametrize("other", OTHER)
@pytest.mark.parametrize("name", TABLES)
def test_a_column_of_another_type_is_refused(finished, tmp_path, capsys, name, other):
    folder = shutil.copytree(finished, tmp_path / "run")
    file = folder / "fedavg" / "seed-0" / name
    table = pq.read_table(file)
    schema, commands = TABLES[name]
    for place, field in enumerate(schema):
        if allowed(field, other):
            continue
        pq.write_table(table.set_column(place, field.name, OTHER[other](len(table))), file)
        for command in commands[: 1 if place % 6 else None]:
            code = main([part.replace("RUN", str(folder)) for part in command])
            printed = capsys.readouterr()
            assert code == (1 if command[0] == "verify" else 2), (command, field.name, printed.err)
            said = printed.out if command[0] == "verify" else printed.err
            assert re.search(rf"{name}: {field.name}: expected a (column of|value in every row)", said), said
            assert not printed.err.startswith("fault: ")


@pytest.mark.parametrize("name", TABLES)
def test_a_column_that_occurs_twice_is_refused(finished, tmp_path, capsys, name):
    folder = shutil.copytree(finished, tmp_path / "run")
    file = folder / "fedavg" / "seed-0" / name
    table = pq.read_table(file)
    pq.write_table(table.append_column("round", table["round"]), file)
    assert main([part.replace("RUN", str(folder)) for part in TABLES[name][1][0]]) == 2
    assert not capsys.readouterr().err.startswith("fault: ")


def test_every_table_has_a_schema_of_whole_numbers_numbers_and_text():
    from edgefl.record.ranges import _words

    for schema in (EVENTS, ROUNDS, SENSITIVITY):
        assert {_words(field.type) for field in schema} <= {"whole numbers", "numbers", "text"}


def test_the_columns_are_the_fields_of_the_rows():
    assert EVENTS.names == list(Event._fields)
    assert ROUNDS.names == [field.name for field in fields(RoundRow)]
