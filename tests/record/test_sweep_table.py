"""The settings of a sweep's jobs are read from its table, whose size is checked first."""

import pyarrow.parquet as pq
import pytest

from edgefl import limits
from edgefl.errors import UserError
from edgefl.record.sweep_table import read_settings, sweep_row, table_of


@pytest.fixture(name="file")
def file_fixture(tmp_path):
    rows = [sweep_row(f"job-{number}", {"training.rounds": number}, "fedavg", {"seconds": 1.5}) for number in (1, 2)]
    pq.write_table(table_of(rows), tmp_path / "sweep.parquet")
    return tmp_path / "sweep.parquet"


def test_the_settings_are_those_that_were_written(file):
    assert read_settings(file) == {"job-1": {"training.rounds": 1}, "job-2": {"training.rounds": 2}}


def test_a_table_that_expands_beyond_the_limit_is_refused_before_it_is_read(file, monkeypatch):
    monkeypatch.setattr(limits, "TABLE_EXPANSION", 0)
    monkeypatch.setattr(limits, "TABLE_BYTES", 8 * 2 * 4)
    assert read_settings(file)
    monkeypatch.setattr(limits, "TABLE_BYTES", 8 * 2 * 4 - 1)
    with pytest.raises(UserError, match=r"sweep\.parquet: expected at most 63 bytes in memory, found 64"):
        read_settings(file)
