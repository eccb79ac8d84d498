"""Tables whose columns are not exactly those that a run writes do not pass, even if every figure is right."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from edgefl.experiment import run
from edgefl.record.sensitivity import OWN
from edgefl.rerun.sensitivity import write_sensitivity
from edgefl.rerun.verify import verify
from edgefl.scenario.loading import check

from ..small_runs import SMALL

TABLES = ["fedavg/seed-0/events.parquet", "fedavg/seed-0/rounds.parquet", "sensitivity.parquet"]
CHANGES = {
    "extra": lambda table: table.append_column("more", pa.nulls(len(table))),
    "missing": lambda table: table.drop_columns(table.column_names[-2]),
    "reordered": lambda table: table.select(table.column_names[::-1]),
    "another type": lambda table: table.set_column(
        table.column_names.index("seconds"), "seconds", table["seconds"].cast("float32")
    ),
    "without metadata": lambda table: table.cast(pa.schema([field.remove_metadata() for field in table.schema])),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = run(check(SMALL), out=tmp_path_factory.mktemp("columns") / "run")
    write_sensitivity(folder, [OWN])
    assert verify(folder) == []
    return folder


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize(
    "name", ["fedavg/seed-0/events.parquet", "fedavg/seed-0/rounds.parquet", "sensitivity.parquet"]
)
def test_other_columns_are_caught(finished, tmp_path, name, change):
    folder = shutil.copytree(finished, tmp_path / "run")
    table = pq.read_table(folder / name)
    pq.write_table(change(table).replace_schema_metadata(table.schema.metadata), folder / name)
    (found,) = verify(folder)
    assert name.rpartition("/")[2] in found
    assert "expected " in found or "it has no column" in found


@pytest.mark.parametrize("name", TABLES)
def test_a_table_that_cannot_be_read_is_a_violation_and_ends_no_check(finished, tmp_path, name):
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    (copy / name).write_bytes(b"PAR1")
    found = verify(copy)
    assert any(name.rpartition("/")[2] in line and "cannot be read" in line for line in found)
