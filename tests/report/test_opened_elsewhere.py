"""A run's tables open in the tools where people already look, with types and without edgefl."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

UNITS = {"seconds": "s", "bytes_down": "B", "bytes_up": "B", "flops": "FLOP", "joules": "J", "exposed_seconds": "s"}
WHOLE = {"round": "int32", "bytes_down": "int64", "bytes_up": "int64", "participants": "int32", "aggregated": "int32"}


@pytest.fixture(scope="module")
def path(small_run):
    return small_run.path / "fedavg" / "seed-0" / "rounds.parquet"


def library(name):
    return pytest.importorskip(name, reason=f"{name} is not installed; a run's tables do not need it")


def test_columns_have_types_and_units_in_their_metadata(path):
    schema = pq.read_schema(path)
    for name in schema.names:
        assert schema.field(name).metadata[b"meaning"], name
    assert {name: schema.field(name).metadata[b"unit"].decode() for name in UNITS} == UNITS
    assert {name: str(schema.field(name).type) for name in WHOLE} == WHOLE
    assert schema.field("accuracy").type == pa.float64()


def test_pandas_opens_it(path, small_run):
    frame = library("pandas").read_parquet(path)
    assert {name: str(frame.dtypes[name]) for name in WHOLE} == WHOLE
    result = small_run.results["fedavg"][0]
    assert frame["accuracy"].iloc[-1] == result.accuracy.final
    assert frame["bytes_down"].sum() == result.bytes.down


def test_the_result_in_python_has_rounds_summary_a_picture_and_a_notebooks_form(small_run):
    library("pandas")
    frame = small_run.rounds.to_pandas()
    assert set(frame["label"]) == set(small_run.labels)
    assert len(frame) == sum(result.rounds for results in small_run.results.values() for result in results)
    assert small_run.summary["methods"]["fedavg"][0]["seed"] == 0
    assert len(small_run.plot().axes) >= 2
    shown = small_run._repr_html_()
    assert all(label in shown for label in small_run.labels)
